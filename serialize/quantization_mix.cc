// A table of llama.cpp's rules by mix, role and layer: the first match gives the type, otherwise the mix's own type.
#include "serialize/quantization_mix.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "graph/base/blocks/fitting_type.h"
#include "graph/base/quote.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

using enum DType;

struct Mix {
  std::string_view name;
  DType type;
  std::string_view rules;  // the mix whose rules apply, for an alias
};
constexpr Mix kMixes[] = {
    {"q2_k", kQ2_K, "q2_k"},       {"q2_k_s", kQ2_K, "q2_k_s"},   {"q3_k_s", kQ3_K, "q3_k_s"},
    {"q3_k_m", kQ3_K, "q3_k_m"},   {"q3_k_l", kQ3_K, "q3_k_l"},   {"q3_k", kQ3_K, "q3_k_m"},
    {"q4_k_s", kQ4_K, "q4_k_s"},   {"q4_k_m", kQ4_K, "q4_k_m"},   {"q4_k", kQ4_K, "q4_k_m"},
    {"q5_k_s", kQ5_K, "q5_k_s"},   {"q5_k_m", kQ5_K, "q5_k_m"},   {"q5_k", kQ5_K, "q5_k_m"},
    {"q6_k", kQ6_K, "q6_k"},       {"q4_0", kQ4_0, "q4_0"},       {"q4_1", kQ4_1, "q4_1"},
    {"q5_0", kQ5_0, "q5_0"},       {"q5_1", kQ5_1, "q5_1"},       {"q8_0", kQ8_0, "q8_0"},
    {"iq4_nl", kIQ4_NL, "iq4_nl"}, {"iq4_xs", kIQ4_XS, "iq4_xs"}, {"tq1_0", kTQ1_0, "tq1_0"},
    {"tq2_0", kTQ2_0, "tq2_0"},    {"mxfp4", kMXFP4, "mxfp4"},    {"nvfp4", kNVFP4, "nvfp4"},
    {"q1_0", kQ1_0, "q1_0"},       {"q2_0", kQ2_0, "q2_0"},       {"nf4", kNF4, "nf4"},
    {"bf16", kBF16, "bf16"},       {"f16", kF16, "f16"},          {"f32", kF32, "f32"},
};

// llama.cpp's types without an encoder here.
constexpr std::string_view kReadAlone[] = {"iq1_s", "iq1_m",   "iq2_xxs", "iq2_xs", "iq2_s",
                                           "iq2_m", "iq3_xxs", "iq3_xs",  "iq3_s",  "iq3_m"};

enum class When : uint8_t {
  kAlways,
  kMoreBits,  // the first and the last eighth of the layers, and every third between
  kFirst2,    // layers
  kFirst4,
  kFirst8th,
  kFirst16th,
  kFirst8thWeighted,  // with importance
  kFirst8thPlain,     // without
  kSharedBy4,         // four query heads and more read one key and value
  kEightExperts,
};

struct Rule {
  std::string_view mix;
  WeightRole role;
  When when;
  DType type;
};
using enum WeightRole;
using enum When;

// The first matching rule applies; otherwise the mix's type. From llama_tensor_get_type of llama.cpp.
constexpr Rule kRules[] = {
    {"q2_k", kV, kSharedBy4, kQ4_K},
    {"q2_k", kV, kAlways, kQ3_K},
    {"q2_k", kO, kEightExperts, kQ5_K},
    {"q2_k", kO, kAlways, kQ3_K},
    {"q2_k", kDown, kAlways, kQ3_K},
    {"q2_k_s", kV, kSharedBy4, kQ4_K},
    {"q2_k_s", kDown, kFirst8th, kQ4_K},
    {"q3_k_s", kO, kEightExperts, kQ5_K},
    {"q3_k_m", kV, kFirst2, kQ5_K},
    {"q3_k_m", kV, kAlways, kQ4_K},
    {"q3_k_m", kO, kEightExperts, kQ5_K},
    {"q3_k_m", kO, kAlways, kQ4_K},
    {"q3_k_m", kDown, kFirst16th, kQ5_K},
    {"q3_k_m", kDown, kAlways, kQ4_K},
    {"q3_k_l", kV, kAlways, kQ5_K},
    {"q3_k_l", kO, kEightExperts, kQ3_K},
    {"q3_k_l", kO, kAlways, kQ5_K},
    {"q3_k_l", kDown, kAlways, kQ5_K},
    {"q4_k_s", kV, kFirst4, kQ5_K},
    {"q4_k_s", kO, kEightExperts, kQ5_K},
    {"q4_k_s", kDown, kFirst8th, kQ5_K},
    {"q4_k_m", kV, kMoreBits, kQ6_K},
    {"q4_k_m", kO, kEightExperts, kQ5_K},
    {"q4_k_m", kDown, kMoreBits, kQ6_K},
    {"q5_k_m", kV, kMoreBits, kQ6_K},
    {"q5_k_m", kDown, kMoreBits, kQ6_K},
    {"iq4_nl", kV, kSharedBy4, kQ5_K},
    {"iq4_nl", kO, kEightExperts, kQ5_K},
    {"iq4_nl", kDown, kFirst8thPlain, kQ5_K},
    {"iq4_xs", kV, kSharedBy4, kQ5_K},
    {"iq4_xs", kO, kEightExperts, kQ5_K},
    {"iq4_xs", kDown, kFirst8thPlain, kQ5_K},
    {"q4_0", kDown, kFirst8thWeighted, kQ4_1},
    {"q5_0", kDown, kFirst8thWeighted, kQ5_1},
    {"tq1_0", kEmbedding, kAlways, kQ4_K},
    {"tq2_0", kEmbedding, kAlways, kQ4_K},
    {"q2_0", kEmbedding, kAlways, kQ4_K},
    {"q8_0", kOutput, kAlways, kQ8_0},
    {"mxfp4", kOutput, kAlways, kQ8_0},
    {"nf4", kOutput, kAlways, kQ8_0},
};

struct TensorRole {
  std::string_view name;  // end of its GGUF name
  WeightRole role;
};
constexpr TensorRole kRoles[] = {
    {"token_embd.weight", kEmbedding},
    {"output.weight", kOutput},
    {"position_embd.weight", kKept},
    {"ffn_gate_inp.weight", kKept},
    {"attn_q.weight", kQ},
    {"attn_k.weight", kK},
    {"attn_v.weight", kV},
    {"attn_qkv.weight", kV},
    {"attn_output.weight", kO},
    {"ffn_gate.weight", kGate},
    {"ffn_up.weight", kUp},
    {"ffn_down.weight", kDown},
    {"ffn_gate_exps.weight", kGate},
    {"ffn_up_exps.weight", kUp},
    {"ffn_down_exps.weight", kDown},
};

// -1 outside of blocks.
int64_t layer_of(std::string_view parameter) {
  constexpr std::string_view kBlock = "block.";
  if (!parameter.starts_with(kBlock)) return -1;
  const size_t dot = parameter.find('.', kBlock.size());
  return dot == parameter.npos ? -1
                               : parse_i64(parameter.substr(kBlock.size(), dot - kBlock.size())).value_or(-1);
}

WeightRole role_of(std::string_view family, std::string_view parameter) {
  constexpr std::string_view kDraft = "draft.";  // the draft block has a layer's weights
  if (parameter.starts_with(kDraft)) return role_of(family, format("block.0.{}", parameter.substr(kDraft.size())));
  if (is_adapter_name(parameter)) return kKept;
  const std::optional<ForeignName> name = gguf_name(family, parameter);
  if (!name) return kOther;
  const std::string_view theirs =
      std::string_view(name->tensor)
          .substr(layer_of(parameter) < 0 ? 0 : name->tensor.find('.', std::string_view("blk.").size()) + 1);
  const auto role = std::ranges::find(kRoles, theirs, &TensorRole::name);
  return role == std::end(kRoles) ? kOther : role->role;
}

// ModelSizes: properties of a model that rules depend on.
struct ModelSizes {
  int64_t layers = 0, experts = 0;
  int64_t heads_for_kv = 1;  // query heads per key and value head
  bool is_tied = true;       // the token embedding is also the head
};

ModelSizes sizes_of(const Graph& graph, std::string_view family) {
  ModelSizes sizes;
  int64_t q_rows = 0, v_rows = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = graph.tensor(id);
    sizes.layers = std::max(sizes.layers, layer_of(tensor.name) + 1);
    if (tensor.type.shape.rank() == 3) sizes.experts = std::max(sizes.experts, tensor.type.shape[0]);
    const WeightRole role = role_of(family, tensor.name);
    if (role == kOutput) sizes.is_tied = false;
    if (tensor.type.shape.rank() != 2) continue;
    if (role == kQ) q_rows = tensor.type.shape[0];
    if (role == kV) v_rows = tensor.type.shape[0];
  }
  if (v_rows > 0) sizes.heads_for_kv = std::max<int64_t>(1, q_rows / v_rows);
  return sizes;
}

bool holds(When when, int64_t layer, const ModelSizes& sizes, bool has_importance) {
  const int64_t n = sizes.layers;
  switch (when) {
    case kAlways: return true;
    case kMoreBits: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case kFirst2: return layer < 2;
    case kFirst4: return layer < 4;
    case kFirst8th: return layer < n / 8;
    case kFirst16th: return layer < n / 16;
    case kFirst8thWeighted: return has_importance && layer < n / 8;
    case kFirst8thPlain: return !has_importance && layer < n / 8;
    case kSharedBy4: return sizes.heads_for_kv >= 4;
    case kEightExperts: return sizes.experts == 8;
  }
  return false;
}

DType type_by_rules(const Mix& mix, WeightRole role, int64_t layer, int64_t width, const ModelSizes& sizes,
                    std::string_view family, bool has_importance) {
  if (role == kOutput && width % info(mix.type).block_elements != 0) return kQ8_0;
  if (sizes.experts == 8 && (role == kK || role == kV)) return kQ8_0;
  const auto rule = std::ranges::find_if(kRules, [&](const Rule& it) {
    return it.mix == mix.rules && it.role == role && holds(it.when, layer, sizes, has_importance);
  });
  DType type = rule != std::end(kRules) ? rule->type : role == kOutput ? kQ6_K : mix.type;
  // Llama 2 and 3 of 70 B: eight heads share keys and values, so their weight is small.
  const bool is_70b = family == "llama" && sizes.layers == 80 && sizes.heads_for_kv > 1;
  if (is_70b && role == kV && (type == kQ3_K || type == kQ4_K)) type = kQ5_K;
  return type;
}

// Names of parameters that ops can read quantized.
Result<std::vector<std::string>> storable_weights(const Graph& graph) {
  WeightStorage storage;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.type.dtype == kF32 && tensor.type.shape.rank() >= 2) storage.types.emplace(tensor.name, kBF16);
  }
  TSR_ASSIGN_OR_RETURN(const Graph stored, with_stored_weights(graph, storage));
  std::vector<std::string> names;
  for (const TensorId id : stored.tensors_of_kind(TensorKind::kParameter))
    if (stored.type(id).dtype == kBF16 && storage.types.contains(stored.tensor(id).name))
      names.push_back(stored.tensor(id).name);
  return names;
}

Status unknown_type(std::string_view name, const std::vector<std::string>& known) {
  return Status(StatusCode::kInvalidArgument,
                format("unknown type '{}'{}; all: {}", quote(name),
                       nearest_hint(name, known), join(known, ", ")));
}

Status check_read_alone(std::string_view name) {
  if (std::ranges::find(kReadAlone, name) == std::end(kReadAlone)) return {};
  return Status(StatusCode::kUnsupported,
                format("type '{}' can be read and not made: there is no encoder for its grids; choose a type "
                       "of that size, such as {}",
                       name, name.starts_with("iq3") ? "q3_k_s or q3_k_m" : "q2_k_s or q2_k"));
}

}  // namespace

std::vector<std::string> mix_names() {
  std::vector<std::string> names;
  for (const Mix& mix : kMixes) names.emplace_back(mix.name);
  return names;
}

Status check_mix_name(std::string_view name) {
  TSR_RETURN_IF_ERROR(check_read_alone(name));
  if (std::ranges::find(kMixes, name, &Mix::name) != std::end(kMixes)) return {};
  return unknown_type(name, mix_names());
}

Result<DType> encodable_type(std::string_view name) {
  TSR_RETURN_IF_ERROR(check_read_alone(name));
  std::vector<std::string> known;
  for (const Mix& mix : kMixes) {
    if (mix.name != info(mix.type).name) continue;
    if (mix.name == name) return mix.type;
    known.emplace_back(mix.name);
  }
  // Element types that are no mix names.
  return unknown_type(name, known);
}

DType fit_type(DType wanted, int64_t width) { return find_fitting_type(wanted, width).value_or(kF16); }

Result<TypeChoices> choose_types(const Graph& graph, std::string_view family, const MixSettings& settings) {
  TSR_RETURN_IF_ERROR(check_mix_name(settings.type));
  const Mix& mix = *std::ranges::find(kMixes, std::string_view(settings.type), &Mix::name);
  const ModelSizes sizes = sizes_of(graph, family);
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> weights, storable_weights(graph));
  TypeChoices choices;
  for (const std::string& name : weights) {
    WeightRole role = role_of(family, name);
    if (role == kKept) continue;
    const bool is_embedding = role == kEmbedding;
    if (is_embedding && sizes.is_tied) role = kOutput;
    const int64_t width = graph.type(*graph.find_tensor(name)).shape.dims().back();
    DType wanted = mix.type;
    if (is_embedding && settings.embedding_type) {
      wanted = *settings.embedding_type;
    } else if (role == kOutput && settings.output_type) {
      wanted = *settings.output_type;
    } else if (is_block_type(mix.type) && !settings.pure) {
      wanted = type_by_rules(mix, role, layer_of(name), width, sizes, family, settings.has_importance);
    }
    choices.emplace(name, TypeChoice{fit_type(wanted, width), wanted, role});
  }
  return choices;
}

}  // namespace tessera
