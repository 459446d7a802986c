// Rotary positions of decoders, as in transformers' RotaryEmbeddingConfigMixin.
#include <algorithm>
#include <cmath>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_reader.h"
#include "serialize/import/huggingface_scaling.h"

namespace tessera {
namespace {

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

bool is_nested(const Json& rope) { return rope.contains(kFull) || rope.contains(kSliding); }

}  // namespace

void HuggingfaceReader::rotation(const RotationKeys& keys) {
  rotation_ = keys;
  const Json* given = rope_object();
  const Json otherwise = keys.scaling.empty() ? Json::object() : Json::parse(keys.scaling);
  const Json& rope = given ? *given : otherwise;
  if (is_nested(rope))
    fields.fail(StatusCode::kUnsupported,
                format("rope_parameters has settings of kinds of layers ({}, {}); the class of {} has one rotation "
                       "for all: put its settings into rope_parameters themselves",
                       kFull, kSliding, out.model_type));
  rotation_from(rope, fields.real("rope_theta", default_theta_), "rope_parameters", true, size_("D"));
  if (keys.scales_scores && given != nullptr) scale_scores(*given);
  if (keys.scales_queries) scale_queries(rope);
}

void HuggingfaceReader::scale_queries(const Json& rope) {
  JsonFields scaling(rope, "config.json: rope_parameters");
  const double beta = scaling.real("llama_4_scaling_beta", 0);
  if (beta < 0) scaling.fail(StatusCode::kCorrupt, format("llama_4_scaling_beta is {}, wanted 0 or more", beta));
  if (beta > 0) {
    real_("query_beta") = beta;
    size_("query_context") = scaling.size("original_max_position_embeddings");
  }
  if (!scaling.status().ok()) fields.fail(scaling.status().code(), std::string(scaling.status().message()));
}

void HuggingfaceReader::scale_scores(const Json& rope) {
  JsonFields scaling(rope, "config.json: rope_parameters");
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  const double all = scaling.real("mscale_all_dim", 0), factor = scaling.real("factor", 1);
  if (type == "default" || all == 0 || factor <= 1) return;
  const double scale = 0.1 * all * std::log(factor) + 1;
  real_("attention_scale") = scale * scale / std::sqrt(static_cast<double>(size_("D")));
}

// Phi-3 accepts older names for longrope, and no other scaling.
void HuggingfaceReader::check_longrope(JsonFields& rope, std::string& type) const {
  if (type == "su" || type == "yarn") type = "longrope";
  if (type != "default" && type != "longrope")
    rope.fail(StatusCode::kUnsupported,
              format("rope_type is '{}'; the class of {} knows default and longrope", quote(type, 60), out.model_type));
}

const Json* HuggingfaceReader::rope_object() {
  const Json* const scaling = fields.object("rope_scaling");
  const Json* const parameters = fields.object("rope_parameters");
  return scaling != nullptr && !scaling->empty() ? scaling : parameters;
}

double HuggingfaceReader::rotation_from(const Json& rope_json, double theta, std::string_view where, bool is_global,
                                        int64_t head_size) {
  JsonFields rope(rope_json, format("config.json: {}", where));
  const int64_t whole = rotation_.rotated.empty() ? head_size : our_size(rotation_.rotated);
  Rotation rotation{rope.real("rope_theta", theta), whole};
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (rotation_.only_longrope) check_longrope(rope, type);
  const double partial = rope.real("partial_rotary_factor", fields.real("partial_rotary_factor", rotation_.part));
  if (rotation_.rotates_part) {
    if (!(partial > 0 && partial <= 1))
      rope.fail(StatusCode::kCorrupt,
                format("partial_rotary_factor is {}, wanted more than 0, at most 1", partial));
    rotation.rotated = static_cast<int64_t>(static_cast<double>(whole) * partial);
  } else if (partial != 1 && type != "default" && type != "proportional") {
    rope.fail(StatusCode::kUnsupported,
              format("partial_rotary_factor is {} with rope_type '{}'; the class of {} rotates whole heads: wanted 1, "
                     "or no such key",
                     partial, type, out.model_type));
  }
  if (rotation.rotated < 2 || rotation.rotated % 2 != 0 || rotation.rotated > kMostRotated ||
      !(rotation.theta > 0))
    rope.fail(StatusCode::kCorrupt, format("{} numbers of a head are rotated with rope_theta {}, wanted an "
                                           "even number of at most {} and a positive base",
                                           rotation.rotated, rotation.theta, kMostRotated));
  if (rope.status().ok() && fields.status().ok() && is_global) {
    real_("rope_theta") = rotation.theta;
    if (rotation.rotated != head_size) size_("R") = rotation.rotated;
    const auto T = static_cast<double>(size_("T"));
    const double inner = rope.real("original_max_position_embeddings", rotation_.original_context.value_or(T));
    const double original = fields.real("original_max_position_embeddings", rotation_.original_context.value_or(inner));
    out.scaling = read_huggingface_scaling(rope, type, rotation, {size_("T"), original});
    if (out.scaling) {
      out.scaling->describe(out.config);
      // Files with the trained length in max_position_embeddings have a longer context.
      size_("T") = std::max(size_("T"), out.scaling->context);
    }
  } else if (rope.status().ok() && type != "default") {
    rope.fail(StatusCode::kUnsupported,
              format("rope_type is '{}'; layers with a window want 'default'", type));
  }
  if (!rope.status().ok()) fields.fail(rope.status().code(), std::string(rope.status().message()));
  return rotation.theta;
}

Json rotation_of_layers(JsonFields& fields, std::string_view kind, bool is_scaled, std::string_view model_type) {
  const Json* const scaling = fields.object("rope_scaling");
  const Json* const parameters = fields.object("rope_parameters");
  Json rope = Json::object();
  if (parameters != nullptr)
    for (const auto& [key, value] : parameters->items()) {
      if (key != kFull && key != kSliding)
        fields.fail(StatusCode::kUnsupported,
                    format("rope_parameters has '{}' outside {} and {}; the class of {} reads these two: put it into "
                           "the one that it is for",
                           quote(key, 60), kFull, kSliding, model_type));
      if (key == kind && value.is_object()) rope = value;
    }
  if (scaling == nullptr || !is_scaled) return rope;
  const auto older = scaling->find("type");
  if (older != scaling->end() && !scaling->contains("rope_type") && *older != "default")
    fields.fail(StatusCode::kUnsupported,
                format("rope_scaling has type {}; the class of {} reads rope_type there", quote_json(*older, 60),
                       model_type));
  rope.update(*scaling);
  return rope;
}

void HuggingfaceReader::rotations(const LayerRotationKeys& keys) {
  rotation_ = {};
  double local_theta = keys.local_theta;
  // Older files have a separate base only for local layers.
  if (!keys.local_key.empty()) local_theta = fields.real(keys.local_key, local_theta);
  Json full = rotation_of_layers(fields, kFull, true, out.model_type);
  if (!keys.scaling.empty() && !fields.has("rope_parameters")) full = Json::parse(keys.scaling);
  int64_t full_head = size_("D");
  const std::vector<int64_t>& sizes = out.config.lists["head_sizes"];
  for (size_t i = 0; keys.by_full_head && i < sizes.size(); ++i)
    if (!has_window(i)) full_head = sizes[i];
  if (sizes.empty()) out.config.lists.erase("head_sizes");
  rotation_from(full, fields.real("rope_theta", default_theta_), "rope_parameters: full_attention", true, full_head);
  real_("window_theta") = rotation_from(rotation_of_layers(fields, kSliding, false, out.model_type), local_theta,
                                        "rope_parameters: sliding_attention", false, size_("D"));
}

}  // namespace tessera
