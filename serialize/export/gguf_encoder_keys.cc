#include "serialize/export/gguf_encoder_keys.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"
#include "serialize/quantization.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

struct Architecture {
  std::string_view family, name;
  bool has_classes;  // llama.cpp has the family's classification head
};
constexpr Architecture kArchitectures[] = {{"bert", "bert", true},
                                           {"distilbert", "bert", false},
                                           {"modernbert", "modern-bert", true},
                                           {"nomic-bert", "nomic-bert", false},
                                           {"roberta", "bert", true}};

Status write_windows(const EncoderSizes& m, const std::string& prefix, GgufWriter& out) {
  const int64_t window = m.windows.empty() ? 0 : *std::ranges::max_element(m.windows);
  if (window == 0) return {};
  int64_t every = 0;  // distance of the first two layers without a window
  for (size_t i = 1; i < m.windows.size() && every == 0; ++i)
    if (m.windows[i] == 0) every = static_cast<int64_t>(i);
  if (every == 0) every = std::max<int64_t>(3, std::ssize(m.windows));
  for (size_t i = 0; i < m.windows.size(); ++i)
    if (m.windows[i] != (static_cast<int64_t>(i) % every == 0 ? 0 : window))
      return unsupported(
          format("GGUF's modern-bert has no word for a window of {} in layer {}: all layers but "
                 "each {}th have one of {}",
                 m.windows[i], i, every, window));
  out.u32(prefix + "attention.sliding_window", 2 * (window - 1));
  out.u32(prefix + "attention.sliding_window_pattern", every);
  return {};
}

}  // namespace

Result<WrittenKeys> write_gguf_encoder_keys(const ExportedConfig& model, GgufWriter& out) {
  const auto found =
      std::ranges::find(kArchitectures, std::string_view(model.config.family), &Architecture::family);
  if (found == std::end(kArchitectures))
    return unsupported(
        format("a model of family '{}' cannot be written as a GGUF file", model.config.family));
  const EncoderSizes& m = *model.encoder;
  if (m.N > 0 && !found->has_classes)
    return unsupported(
        format("GGUF's {} has no word for the classes of a {}; export it as a Hugging Face folder",
               found->name, model.config.family));
  if (m.N > 0 && model.config.family == "modernbert" && m.head_bias)
    return unsupported("GGUF's modern-bert has no word for a bias in the head of classes (head_bias)");
  WrittenKeys keys;
  keys.architecture = found->name;
  const std::string prefix = keys.architecture + ".";
  out.u32(prefix + "vocab_size", m.V);
  out.u32(prefix + "context_length", m.T);
  out.u32(prefix + "embedding_length", m.C);
  out.u32(prefix + "block_count", m.L);
  out.u32(prefix + "feed_forward_length", m.F);
  out.u32(prefix + "attention.head_count", m.H);
  out.f32(prefix + "attention.layer_norm_epsilon", m.norm_eps);
  out.flag(prefix + "attention.causal", false);
  if (m.rope_theta > 0) out.f32(prefix + "rope.freq_base", m.rope_theta);
  if (m.window_theta > 0) out.f32(prefix + "rope.freq_base_swa", m.window_theta);
  TSR_RETURN_IF_ERROR(write_windows(m, prefix, out));
  if (model.config.family != "modernbert")
    out.u32("tokenizer.ggml.token_type_count", std::max<int64_t>(1, m.Y));
  if (m.N > 0) {
    std::vector<std::string> labels = model.labels;
    for (auto i = std::ssize(labels); i < m.N; ++i) labels.push_back(format("LABEL_{}", i));
    out.texts(prefix + "classifier.output_labels", labels);
    if (model.config.family == "modernbert") {
      constexpr int64_t kMean = 1, kCls = 2;
      out.u32(prefix + "classifier.pooling_type", m.class_mean ? kMean : kCls);
    }
  }
  if (m.mlm)
    keys.notes.push_back("the head for masked tokens was left out: GGUF files of encoders have none");
  if (m.pooler)
    keys.notes.push_back("the pooler was left out: GGUF files of encoders have none without classes");
  return keys;
}

void leave_out_heads(const EncoderSizes& sizes, std::set<std::string, std::less<>>& left_out) {
  if (sizes.mlm)
    left_out.insert(
        {"head.weight", "head.bias", "head_norm.weight", "head_norm.bias", "output.weight", "output.bias"});
  if (sizes.pooler) left_out.insert({"pooler.weight", "pooler.bias"});
}

Status cut_positions(OpenedModel& opened, int64_t rows) {
  const auto table = std::ranges::find(opened.parameters, "position_embedding", &TensorSource::name);
  if (table == opened.parameters.end() || rows == 0) return {};
  TSR_ASSIGN_OR_RETURN(const HostTensor stored, read_whole(*table));
  TSR_ASSIGN_OR_RETURN(const HostTensor wide, widen_weight(stored));
  const int64_t all = wide.type.shape[0], columns = wide.type.shape[1];
  const std::span<const float> kept = wide.as<float>().subspan(static_cast<size_t>(rows * columns));
  *table = source_in_memory("position_embedding",
                            HostTensor::copy_of<float>({DType::kF32, {all - rows, columns}}, kept));
  return {};
}

}  // namespace tessera
