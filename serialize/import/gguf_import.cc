// GGUF model -> Model: hyper-parameters give the graph through its family, tensors become its parameters by
// name. Weights lie as [N, K] in both, so nothing is transposed; what is not f32 is turned into f32.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "serialize/import/dequantize.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/gguf_tokenizer.h"
#include "serialize/model.h"

namespace tessera {
namespace {

constexpr int64_t kMaxLayers = 1024;

// How a parameter of ours is called in the file. `part`: which third of the rows of a fused tensor; -1: all.
struct NameRule {
  std::string_view ours, theirs;
  int part = -1;
};

constexpr NameRule kLlamaNames[] = {{"token_embedding", "token_embd.weight"},
                                    {"final_norm", "output_norm.weight"},
                                    {"output", "output.weight"}};
constexpr NameRule kLlamaBlockNames[] = {{"attention_norm", "attn_norm.weight"},
                                         {"q", "attn_q.weight"},
                                         {"k", "attn_k.weight"},
                                         {"v", "attn_v.weight"},
                                         {"o", "attn_output.weight"},
                                         {"ffn_norm", "ffn_norm.weight"},
                                         {"gate", "ffn_gate.weight"},
                                         {"up", "ffn_up.weight"},
                                         {"down", "ffn_down.weight"}};

constexpr NameRule kGpt2Names[] = {{"token_embedding", "token_embd.weight"},
                                   {"position_embedding", "position_embd.weight"},
                                   {"final_norm.weight", "output_norm.weight"},
                                   {"final_norm.bias", "output_norm.bias"},
                                   {"output", "output.weight"}};
constexpr NameRule kGpt2BlockNames[] = {
    {"norm1.weight", "attn_norm.weight"}, {"norm1.bias", "attn_norm.bias"},
    {"q.weight", "attn_qkv.weight", 0},   {"q.bias", "attn_qkv.bias", 0},
    {"k.weight", "attn_qkv.weight", 1},   {"k.bias", "attn_qkv.bias", 1},
    {"v.weight", "attn_qkv.weight", 2},   {"v.bias", "attn_qkv.bias", 2},
    {"o.weight", "attn_output.weight"},   {"o.bias", "attn_output.bias"},
    {"norm2.weight", "ffn_norm.weight"},  {"norm2.bias", "ffn_norm.bias"},
    {"fc.weight", "ffn_up.weight"},       {"fc.bias", "ffn_up.bias"},
    {"proj.weight", "ffn_down.weight"},   {"proj.bias", "ffn_down.bias"}};

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// Sizes that both families have; `prefix` is "llama.".
Status read_common_sizes(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  TSR_ASSIGN_OR_RETURN(config.sizes["L"], file.integer(prefix + "block_count"));
  TSR_ASSIGN_OR_RETURN(config.sizes["C"], file.integer(prefix + "embedding_length"));
  TSR_ASSIGN_OR_RETURN(config.sizes["H"], file.integer(prefix + "attention.head_count"));
  TSR_ASSIGN_OR_RETURN(config.sizes["F"], file.integer(prefix + "feed_forward_length"));
  TSR_ASSIGN_OR_RETURN(config.sizes["T"], file.integer(prefix + "context_length"));
  if (config.sizes["L"] > kMaxLayers) {
    return unsupported(
        format("{}block_count is {}; at most {} are read", prefix, config.sizes["L"], kMaxLayers));
  }
  TSR_ASSIGN_OR_RETURN(const bool causal, file.flag(prefix + "attention.causal", true));
  if (!causal) return unsupported(prefix + "attention.causal is false; only causal models can be imported");
  if (config.sizes["H"] < 1)
    return Status(StatusCode::kCorrupt, prefix + "attention.head_count is not positive");
  return {};
}

Status read_llama(const GgufFile& file, ModelConfig& config) {
  TSR_RETURN_IF_ERROR(read_common_sizes(file, "llama.", config));
  TSR_ASSIGN_OR_RETURN(config.sizes["KV"], file.integer("llama.attention.head_count_kv", config.sizes["H"]));
  const int64_t head_size = config.sizes["C"] / config.sizes["H"];
  TSR_ASSIGN_OR_RETURN(config.sizes["D"], file.integer("llama.attention.key_length", head_size));
  TSR_ASSIGN_OR_RETURN(config.reals["norm_eps"], file.real("llama.attention.layer_norm_rms_epsilon"));
  TSR_ASSIGN_OR_RETURN(config.reals["rope_theta"], file.real("llama.rope.freq_base", 10000.0));
  TSR_ASSIGN_OR_RETURN(int64_t value_size, file.integer("llama.attention.value_length", config.sizes["D"]));
  TSR_ASSIGN_OR_RETURN(int64_t rotated, file.integer("llama.rope.dimension_count", config.sizes["D"]));
  if (rotated != config.sizes["D"] || value_size != config.sizes["D"]) {
    return unsupported(format("heads of {} with {} rotated and values of {}; all three must be equal",
                              config.sizes["D"], rotated, value_size));
  }
  // As the format's reference reader has it: linear where no type is said, by the factor or its older name.
  TSR_ASSIGN_OR_RETURN(std::string scaling, file.text("llama.rope.scaling.type", "linear"));
  TSR_ASSIGN_OR_RETURN(double factor, file.real("llama.rope.scale_linear", 1.0));
  TSR_ASSIGN_OR_RETURN(factor, file.real("llama.rope.scaling.factor", factor));
  const bool unscaled = scaling == "none" || (scaling == "linear" && (factor == 1.0 || factor == 0.0));
  if (!unscaled) {
    return unsupported(format("rotary positions with {} scaling by {} are not supported", scaling, factor));
  }
  // Attention to the last `window` tokens alone is what all of a context that is no longer gives.
  TSR_ASSIGN_OR_RETURN(const int64_t window,
                       file.integer("llama.attention.sliding_window", config.sizes["T"]));
  if (window > 0) config.sizes["T"] = std::min(config.sizes["T"], window);
  // What some variants multiply by; 0 stands for nothing.
  for (const char* key : {"llama.logit_scale", "llama.embedding_scale", "llama.residual_scale"}) {
    TSR_ASSIGN_OR_RETURN(const double factor, file.real(key, 1.0));
    if (factor != 1.0 && factor != 0.0)
      return unsupported(format("{} is {}; only models without it can be imported", key, factor));
  }
  TSR_ASSIGN_OR_RETURN(const double attention, file.real("llama.attention.scale", 0.0));
  if (attention != 0.0 && std::abs(attention * std::sqrt(static_cast<double>(config.sizes["D"])) - 1) > 1e-5)
    return unsupported(format("llama.attention.scale is {}, wanted one over the root of the head size {}",
                              attention, config.sizes["D"]));
  TSR_ASSIGN_OR_RETURN(int64_t experts, file.integer("llama.expert_count", 0));
  if (experts != 0) return unsupported(format("a mixture of {} experts is not supported", experts));
  return {};
}

Status read_gpt2(const GgufFile& file, ModelConfig& config) {
  TSR_RETURN_IF_ERROR(read_common_sizes(file, "gpt2.", config));
  TSR_ASSIGN_OR_RETURN(config.reals["norm_eps"], file.real("gpt2.attention.layer_norm_epsilon"));
  return {};
}

struct Architecture {
  std::string_view name;  // ours and the file's
  Status (*read)(const GgufFile&, ModelConfig&);
  std::span<const NameRule> names, block_names;
};
constexpr Architecture kArchitectures[] = {{"llama", read_llama, kLlamaNames, kLlamaBlockNames},
                                           {"gpt2", read_gpt2, kGpt2Names, kGpt2BlockNames}};

struct TheirName {
  std::string name;
  int part = -1;
};

Result<TheirName> their_name(const Architecture& architecture, std::string_view parameter) {
  std::string_view ours = parameter;
  std::span<const NameRule> rules = architecture.names;
  std::string prefix;
  if (ours.starts_with("block.")) {
    const size_t dot = ours.find('.', 6);
    rules = architecture.block_names;
    prefix = "blk." + std::string(ours.substr(6, dot - 6)) + ".";
    ours = ours.substr(dot + 1);
  }
  auto rule = std::ranges::find(rules, ours, &NameRule::ours);
  TSR_CHECK(rule != rules.end(), "a parameter of the family has no name in GGUF");
  return TheirName{prefix + std::string(rule->theirs), rule->part};
}

// Whether two tensors hold the same bytes: a file may spell out a tied output projection.
Result<bool> same_contents(const GgufFile& file, const GgufTensor& a, const GgufTensor& b) {
  if (a.type != b.type || a.dims != b.dims) return false;
  std::vector<std::byte> left(size_t{1} << 18), right(left.size());
  for (int64_t done = 0; done < a.bytes;) {
    const auto part =
        static_cast<size_t>(std::min<int64_t>(a.bytes - done, static_cast<int64_t>(left.size())));
    TSR_RETURN_IF_ERROR(file.source()->read_at(a.offset + done, std::span(left).first(part)));
    TSR_RETURN_IF_ERROR(file.source()->read_at(b.offset + done, std::span(right).first(part)));
    if (!std::equal(left.begin(), left.begin() + static_cast<ptrdiff_t>(part), right.begin())) return false;
    done += static_cast<int64_t>(part);
  }
  return true;
}

// `bytes` at `offset` of the file as f32: in place when they are, else converted.
Result<HostTensor> read_f32(const GgufFile& file, const TensorType& type, DType stored, int64_t offset,
                            int64_t bytes) {
  if (stored == DType::kF32) {
    const std::span<const std::byte> mapped = file.source()->map(offset, bytes);
    const bool aligned = reinterpret_cast<uintptr_t>(mapped.data()) % alignof(float) == 0;
    if (static_cast<int64_t>(mapped.size()) == bytes && aligned)
      return HostTensor{type, mapped, file.source()};
  }
  std::vector<std::byte> copy(static_cast<size_t>(bytes));
  TSR_RETURN_IF_ERROR(file.source()->read_at(offset, copy));
  std::span<std::byte> contents;
  HostTensor tensor = HostTensor::zeros(type, &contents);
  const bool converted = dequantize(
      stored, copy, {reinterpret_cast<float*>(contents.data()), static_cast<size_t>(type.shape.elements())});
  TSR_CHECK(converted, "an importable type that cannot be converted");
  return tensor;
}

Result<HostTensor> read_parameter(const GgufFile& file, const GgufTensor& tensor, int part,
                                  const TensorType& type) {
  std::vector<int64_t> extents(tensor.dims.rbegin(), tensor.dims.rend());
  const int64_t parts = part < 0 ? 1 : 3;
  const bool divides = part < 0 || (!extents.empty() && extents[0] % parts == 0);
  if (divides && part >= 0) extents[0] /= parts;
  if (!divides || !std::ranges::equal(extents, type.shape.dims())) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' is [{}]{}, the model wants [{}]", tensor.name,
                                               Shape(extents), part < 0 ? "" : " per third", type.shape));
  }
  const DType stored = gguf_tensor_type(tensor.type)->dtype;
  const DTypeInfo& layout = info(stored);
  if (type.shape.elements() % layout.block_elements != 0) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' cannot be split between blocks", tensor.name));
  }
  const int64_t bytes = dtype_bytes(stored, type.shape.elements());
  return read_f32(file, type, stored, tensor.offset + (part < 0 ? 0 : part * bytes), bytes);
}

Status read_parameters(const GgufFile& file, const Architecture& architecture,
                       const std::set<std::string>& left_out, Model& model) {
  std::set<std::string> used = left_out;
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& parameter = model.graph.tensor(id);
    TSR_ASSIGN_OR_RETURN(TheirName theirs, their_name(architecture, parameter.name));
    auto tensor = file.tensors().find(theirs.name);
    if (tensor == file.tensors().end()) {
      return Status(StatusCode::kCorrupt, format("tensor '{}' is missing", theirs.name));
    }
    TSR_ASSIGN_OR_RETURN(HostTensor value, read_parameter(file, tensor->second, theirs.part, parameter.type));
    model.parameters.emplace(parameter.name, std::move(value));
    used.insert(theirs.name);
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!used.contains(name)) {
      return unsupported(
          format("tensor '{}' has no place in a {} model: the file is a variant that is not supported", name,
                 architecture.name));
    }
  }
  return {};
}

void read_metadata(const GgufFile& file, Model& model) {
  for (const auto& [key, value] : file.metadata()) {
    constexpr std::string_view kPrefix = "general.";
    if (!key.starts_with(kPrefix)) continue;
    if (auto* text = std::get_if<std::string>(&value)) model.metadata[key.substr(kPrefix.size())] = *text;
  }
  model.metadata["source_format"] = "gguf";
}

}  // namespace

Result<Model> import_gguf(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(std::move(source)));
  Model model;
  TSR_ASSIGN_OR_RETURN(model.tokenizer, gguf_tokenizer(file));
  read_metadata(file, model);
  TSR_ASSIGN_OR_RETURN(std::string name, file.text("general.architecture"));
  auto architecture = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (architecture == std::end(kArchitectures)) {
    // A vocabulary alone is worth having whatever model it belongs to.
    if (file.tensors().empty() && model.tokenizer) return model;
    return unsupported(format("general.architecture is '{}'; llama and gpt2 can be imported", name));
  }

  ModelConfig config;
  config.family = name;
  TSR_RETURN_IF_ERROR(architecture->read(file, config));
  model.metadata["context_length"] = to_text(config.sizes["T"]);
  std::set<std::string> left_out;
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding != file.tensors().end() && embedding->second.dims.size() == 2) {
    config.sizes["V"] = embedding->second.dims[1];
    const auto output = file.tensors().find("output.weight");
    config.flags["tied"] = output == file.tensors().end();
    if (output != file.tensors().end()) {
      TSR_ASSIGN_OR_RETURN(config.flags["tied"], same_contents(file, embedding->second, output->second));
      if (config.flags["tied"]) left_out.insert("output.weight");
    }
  } else {
    const auto tokens = model.tokenizer ? static_cast<int64_t>(model.tokenizer->tokens.size()) : 0;
    TSR_ASSIGN_OR_RETURN(config.sizes["V"], file.integer(name + ".vocab_size", tokens));
  }
  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config));
  if (!file.tensors().empty()) TSR_RETURN_IF_ERROR(read_parameters(file, *architecture, left_out, model));
  return model;
}

}  // namespace tessera
