#include "serialize/import/gguf_encoder_hyperparameters.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr int64_t kMaxLayers = 1024;

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }
Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

class EncoderKeyReader {
 public:
  EncoderKeyReader(const GgufFile& file, std::string_view architecture, const ForeignTensors& tensors,
                   std::map<std::string, std::string>& metadata)
      : file_(file),
        architecture_(architecture),
        prefix_(std::string(architecture) + "."),
        tensors_(tensors),
        metadata_(metadata) {}

  Result<ModelConfig> run() {
    TSR_RETURN_IF_ERROR(read_sizes());
    config_.family = architecture_ == "bert"         ? "bert"
                     : architecture_ == "nomic-bert" ? "nomic-bert"
                                                     : "modernbert";
    config_.flags["mlm"] = false;
    if (architecture_ != "modern-bert") TSR_RETURN_IF_ERROR(read_types());
    if (architecture_ != "bert") TSR_RETURN_IF_ERROR(read_rotation());
    if (architecture_ == "modern-bert") TSR_RETURN_IF_ERROR(read_windows());
    TSR_RETURN_IF_ERROR(read_classes());
    return std::move(config_);
  }

 private:
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const {
    return file_.integer(prefix_ + std::string(key), fallback);
  }

  Status read_sizes() {
    TSR_ASSIGN_OR_RETURN(const int64_t layers, integer("block_count"));
    if (layers < 1 || layers > kMaxLayers)
      return corrupt(format("{}block_count is {}; wanted 1 to {}", prefix_, layers, kMaxLayers));
    config_.sizes["L"] = layers;
    const std::pair<const char*, const char*> keys[] = {{"C", "embedding_length"},
                                                        {"H", "attention.head_count"},
                                                        {"F", "feed_forward_length"},
                                                        {"T", "context_length"}};
    for (const auto& [name, key] : keys) {
      TSR_ASSIGN_OR_RETURN(const int64_t size, integer(key));
      if (size < 1) return corrupt(format("{}{} is {}, wanted 1 or more", prefix_, key, size));
      config_.sizes[name] = size;
    }
    TSR_ASSIGN_OR_RETURN(const int64_t key_value_heads,
                         integer("attention.head_count_kv", config_.sizes["H"]));
    if (key_value_heads != config_.sizes["H"])
      return unsupported(format("{}attention.head_count_kv is {}, wanted as many as heads: {}", prefix_,
                                key_value_heads, config_.sizes["H"]));
    TSR_ASSIGN_OR_RETURN(config_.reals["norm_eps"], file_.real(prefix_ + "attention.layer_norm_epsilon"));
    TSR_ASSIGN_OR_RETURN(const bool causal, file_.flag(prefix_ + "attention.causal", true));
    if (causal)
      return unsupported(
          format("{}attention.causal is true; only encoders that attend in both directions can be "
                 "imported",
                 prefix_));
    for (const char* const key : {"expert_count", "moe_every_n_layers"}) {
      TSR_ASSIGN_OR_RETURN(const int64_t value, integer(key, 0));
      if (value != 0)
        return unsupported(
            format("{}{} is {}; only models without it (or with 0) can be imported", prefix_, key, value));
    }
    const auto table = tensors_.find("token_embd.weight");
    if (table == tensors_.end() || table->second.shape.rank() != 2)
      return corrupt("tensor 'token_embd.weight' [V, C] is missing");
    config_.sizes["V"] = table->second.shape[0];
    return {};
  }

  // Without a type table the model is DistilBERT.
  Status read_types() {
    const auto table = tensors_.find("token_types.weight");
    if (table != tensors_.end() && table->second.shape.rank() >= 1) {
      config_.sizes["Y"] = table->second.shape.rank() == 2 ? table->second.shape[0] : 1;
      return {};
    }
    if (architecture_ == "bert") config_.family = "distilbert";
    return table == tensors_.end() && architecture_ == "bert"
               ? Status()
               : corrupt("tensor 'token_types.weight' is missing");
  }

  Status read_rotation() {
    const double otherwise = architecture_ == "modern-bert" ? 160000.0 : 1000.0;
    TSR_ASSIGN_OR_RETURN(config_.reals["rope_theta"], file_.real(prefix_ + "rope.freq_base", otherwise));
    TSR_ASSIGN_OR_RETURN(const std::string type, file_.text(prefix_ + "rope.scaling.type", "none"));
    TSR_ASSIGN_OR_RETURN(const double factor, file_.real(prefix_ + "rope.scaling.factor", 1.0));
    if (type != "none" && factor != 1)
      return unsupported(format("{}rope.scaling.type is '{}'; encoders want none", prefix_, type));
    const int64_t D = std::max<int64_t>(1, config_.sizes["C"] / config_.sizes["H"]);
    TSR_ASSIGN_OR_RETURN(const int64_t rotated, integer("rope.dimension_count", D));
    if (rotated != D)
      return unsupported(
          format("{}rope.dimension_count is {}, wanted that of a head: {}", prefix_, rotated, D));
    return {};
  }

  // Half of attention.sliding_window on both sides, in all layers except each `every`th.
  Status read_windows() {
    TSR_ASSIGN_OR_RETURN(const int64_t window, integer("attention.sliding_window", 0));
    TSR_ASSIGN_OR_RETURN(config_.reals["window_theta"],
                         file_.real(prefix_ + "rope.freq_base_swa", config_.reals["rope_theta"]));
    TSR_ASSIGN_OR_RETURN(const std::string activation, file_.text(prefix_ + "hidden_act", "gelu"));
    if (activation != "gelu")
      return unsupported(
          format("{}hidden_act is '{}'; only a model with 'gelu' can be imported", prefix_, activation));
    const std::string key = prefix_ + "attention.sliding_window_pattern";
    if (file_.has_array(key)) return unsupported(format("{} is a list; wanted a number", key));
    TSR_ASSIGN_OR_RETURN(const int64_t every, file_.integer(key, 3));
    if (window < 0 || every < 1)
      return corrupt(format("{}attention.sliding_window is {} and its pattern {}, wanted positive ones",
                            prefix_, window, every));
    std::vector<int64_t>& windows = config_.lists["windows"];
    for (int64_t i = 0; i < config_.sizes["L"]; ++i)
      windows.push_back(window == 0 || i % every == 0 ? 0 : window / 2 + 1);
    return {};
  }

  Status read_classes() {
    const auto table = tensors_.find("cls.output.weight");
    if (table == tensors_.end()) return {};
    if (!tensors_.contains("cls.weight"))
      return unsupported(
          "tensor 'cls.output.weight' without 'cls.weight': only classes with a dense layer before them can "
          "be imported");
    if (config_.family == "distilbert") return corrupt("tensor 'token_types.weight' is missing");
    config_.sizes["N"] = table->second.shape.rank() == 2 ? table->second.shape[0] : 1;
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> labels,
                         file_.texts(prefix_ + "classifier.output_labels"));
    if (!labels.empty() && std::ssize(labels) != config_.sizes["N"])
      return corrupt(format("{}classifier.output_labels has {} names for {} classes", prefix_, labels.size(),
                            config_.sizes["N"]));
    if (!labels.empty()) metadata_["labels"] = dump(Json(labels));
    if (architecture_ != "modern-bert") return {};
    constexpr int64_t kMean = 1, kCls = 2;
    TSR_ASSIGN_OR_RETURN(const int64_t pooling, integer("classifier.pooling_type", kMean));
    if (pooling != kCls && pooling != kMean)
      return unsupported(format("{}classifier.pooling_type is {}; known: {} mean, {} cls", prefix_, pooling, kMean,
                                kCls));
    config_.flags["class_mean"] = pooling == kMean;
    return {};
  }

  const GgufFile& file_;
  const std::string_view architecture_;
  const std::string prefix_;
  const ForeignTensors& tensors_;
  std::map<std::string, std::string>& metadata_;
  ModelConfig config_;
};

}  // namespace

bool is_gguf_encoder(std::string_view architecture) {
  return std::ranges::find(kGgufEncoders, architecture) != std::end(kGgufEncoders);
}

Result<ModelConfig> read_gguf_encoder(const GgufFile& file, std::string_view architecture,
                                      const ForeignTensors& tensors,
                                      std::map<std::string, std::string>& metadata) {
  return EncoderKeyReader(file, architecture, tensors, metadata).run();
}

}  // namespace tessera
