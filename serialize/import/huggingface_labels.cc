#include "serialize/import/huggingface_labels.h"

#include "graph/base/text.h"
#include "serialize/class_head.h"

namespace tessera {
namespace {

constexpr int64_t kMostLabels = 1 << 16;

// An unknown function keeps its name; logits remain available.
void read_activation(JsonFields& fields, HuggingfaceConfig& out) {
  std::string module = fields.text("sbert_ce_default_activation_function", "");
  if (const Json* const settings = fields.object("sentence_transformers")) {
    JsonFields inner(*settings, "config.json: sentence_transformers");
    module = inner.text("activation_fn", module);
    if (!inner.status().ok()) fields.fail(inner.status().code(), std::string(inner.status().message()));
  }
  const auto known = class_activation_from_torch(module);
  out.class_activation = known ? std::string(name_of(*known)) : module;
}

}  // namespace

void read_labels(JsonFields& fields, HuggingfaceConfig& out) {
  const Json* given = fields.object("id2label");
  const auto named = given ? static_cast<int64_t>(given->size()) : int64_t{2};
  const int64_t count = fields.integer("num_labels", named, 1, kMostLabels);
  if (!fields.status().ok()) return;
  if (given && named != count) {
    fields.fail(StatusCode::kCorrupt, format("id2label has {} labels, num_labels is {}", named, count));
    return;
  }
  if (count > kMostLabels) {
    fields.fail(StatusCode::kUnsupported,
                format("id2label has {} labels, wanted at most {}", count, kMostLabels));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string key = to_text(i);
    if (!given) {
      out.labels.push_back("LABEL_" + key);
      continue;
    }
    const auto label = given->find(key);
    if (label == given->end() || !label->is_string()) {
      fields.fail(StatusCode::kCorrupt,
                  format("id2label has no text for \"{}\", wanted one for each of {}", key, count));
      return;
    }
    out.labels.push_back(label->get<std::string>());
  }
  out.config.sizes["N"] = count;
  out.problem_type = fields.text("problem_type", "");
  if (const Status status = check_problem_type(out.problem_type, "problem_type"); !status.ok())
    fields.fail(status.code(), std::string(status.message()));
  read_activation(fields, out);
}

}  // namespace tessera
