#include "graph/models/model_family.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/text.h"
#include "graph/models/decoder.h"
#include "graph/models/encoder.h"
#include "graph/models/families.h"

namespace tessera {

namespace {

const ForeignNames kLlamaHuggingface(kDecoderHuggingfaceNames), kLlamaGguf(kDecoderGgufNames);
const ForeignNames kGemma2Huggingface(kGemma2Names, kDecoderHuggingfaceNames);

const ModelFamily kFamilies[] = {
    {.name = "bert",
     .example = "bert:L=12,C=768,H=12,V=30522,T=512",
     .build = build_bert,
     .huggingface = {kBertHuggingfaceNames},
     .gguf = {kBertGgufNames, kEncoderGgufNames},
     .encoder = bert_sizes},
    {.name = "distilbert",
     .example = "distilbert:L=6,C=768,H=12,V=30522,T=512",
     .build = build_distilbert,
     .huggingface = {kDistilbertHuggingfaceNames},
     .gguf = {kRobertaGgufNames, kEncoderGgufNames},
     .encoder = distilbert_sizes},
    {.name = "encoder",
     .example = "encoder:L=12,C=768,H=12,V=30522,T=512",
     .build = build_encoder,
     .gguf = {kEncoderGgufNames},
     .encoder = plain_encoder_sizes},
    {"deepseek2",
     "deepseek2:L=27,C=2048,H=16,D=192,R=64,KA=512,VD=128,F=1408,E=64,K=6,FS=2816,FD=10944,V=102400,T=163840",
     build_deepseek2,
     {kDeepseek2HuggingfaceNames, kDecoderHuggingfaceNames},
     {kDeepseek2GgufNames, kDecoderGgufNames},
     deepseek2_sizes},
    {"gemma",
     "gemma:L=18,C=2048,H=8,KV=1,D=256,F=16384,V=256000,T=8192,tied,rope_half",
     build_gemma,
     {kGemmaNames, kDecoderHuggingfaceNames},
     kLlamaGguf,
     gemma_sizes},
    {"gemma2", "gemma2:L=26,C=2304,H=8,KV=4,D=256,F=9216,V=256000,T=8192,window=4096,tied,rope_half",
     build_gemma2, kGemma2Huggingface, kLlamaGguf, gemma2_sizes},
    {"gemma3", "gemma3:L=26,C=1152,H=4,KV=1,D=256,F=6912,V=262144,T=32768,window=512,tied,rope_half",
     build_gemma3, kGemma2Huggingface, kLlamaGguf, gemma3_sizes},
    {"gpt2", "gpt2:L=12,C=768,H=12,V=50257,T=1024", build_gpt2, {kGpt2HuggingfaceNames}, {kGpt2GgufNames}},
    {"gpt-oss",
     "gpt-oss:L=24,C=2880,H=64,KV=8,D=64,F=2880,E=32,K=4,V=201088,T=131072,window=128,rope_half",
     build_gpt_oss,
     {kGptOssHuggingfaceNames, kDecoderHuggingfaceNames},
     {kGptOssGgufNames, kDecoderGgufNames},
     gpt_oss_sizes},
    {"granite", "granite:L=40,C=2048,H=32,KV=8,F=8192,V=49155,T=131072,tied,rope_half", build_granite,
     kLlamaHuggingface, kLlamaGguf, granite_sizes},
    {"llama", "llama:L=22,C=2048,H=32,KV=4,F=5632,V=32000,T=2048", build_llama, kLlamaHuggingface, kLlamaGguf,
     llama_sizes},
    {"mlp", "mlp:L=2,C=784,F=256,V=10", build_mlp},
    {.name = "modernbert",
     .example = "modernbert:L=22,C=768,H=12,F=1152,V=50368,T=8192",
     .build = build_modernbert,
     .huggingface = {kModernbertHuggingfaceNames},
     .gguf = {kModernbertGgufNames, kEncoderGgufNames},
     .encoder = modernbert_sizes},
    {"moe",
     "moe:L=32,C=4096,H=32,KV=8,F=14336,E=8,K=2,V=32000,T=4096",
     build_moe,
     {kMixtralNames, kDecoderHuggingfaceNames},
     kLlamaGguf,
     moe_sizes},
    {.name = "nomic-bert",
     .example = "nomic-bert:L=12,C=768,H=12,F=3072,V=30528,T=2048",
     .build = build_nomic_bert,
     .huggingface = {kNomicBertHuggingfaceNames, kBertHuggingfaceNames},
     .gguf = {kNomicBertGgufNames, kEncoderGgufNames},
     .encoder = nomic_bert_sizes},
    {"olmo2",
     "olmo2:L=16,C=2048,H=16,F=8192,V=100352,T=4096,rope_half",
     build_olmo2,
     {kOlmo2Names, kDecoderHuggingfaceNames},
     kLlamaGguf,
     olmo2_sizes},
    {"phi3",
     "phi3:L=32,C=3072,H=32,F=8192,V=32064,T=4096,rope_half",
     build_phi3,
     {kPhi3HuggingfaceNames, kDecoderHuggingfaceNames},
     {kPhi3GgufNames, kDecoderGgufNames},
     phi3_sizes},
    {"qwen2", "qwen2:L=24,C=896,H=14,KV=2,F=4864,V=151936,T=32768,tied,rope_half", build_qwen2,
     kLlamaHuggingface, kLlamaGguf, qwen2_sizes},
    {"qwen2moe",
     "qwen2moe:L=24,C=2048,H=16,F=1408,E=60,K=4,FS=5632,V=151936,T=8192,rope_half",
     build_qwen2moe,
     {kQwen2moeHuggingfaceNames, kDecoderHuggingfaceNames},
     {kQwen2moeGgufNames, kDecoderGgufNames},
     qwen2moe_sizes},
    {"qwen3", "qwen3:L=28,C=1024,H=16,KV=8,D=128,F=3072,V=151936,T=40960,tied,rope_half", build_qwen3,
     kLlamaHuggingface, kLlamaGguf, qwen3_sizes},
    {"qwen3moe", "qwen3moe:L=48,C=2048,H=32,KV=4,D=128,F=768,E=128,K=8,V=151936,T=40960,rope_half",
     build_qwen3moe, kLlamaHuggingface, kLlamaGguf, qwen3moe_sizes},
    {.name = "roberta",
     .example = "roberta:L=12,C=768,H=12,V=50265,T=512",
     .build = build_roberta,
     .huggingface = {kRobertaHuggingfaceNames, kBertHuggingfaceNames},
     .gguf = {kRobertaGgufNames, kEncoderGgufNames},
     .encoder = roberta_sizes},
    {"smollm3", "smollm3:L=36,C=2048,H=16,KV=4,F=11008,V=128256,T=65536,tied", build_smollm3,
     kLlamaHuggingface, kLlamaGguf, smollm3_sizes},
};

Status unknown_family(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelFamily& family : kFamilies) names.emplace_back(family.name);
  return Status(StatusCode::kNotFound, format("model family '{}' is not known; known: {}; an example: {}",
                                              name, join(names, ", "), find_model_family("llama")->example));
}

// Keys of a shorthand that are not sizes (sizes are all capitals).
constexpr std::string_view kReals[] = {
    "attention_scale", "aux", "capacity", "dropout", "embedding_scale", "expert_scale", "gate_limit",
    "latent_norm_eps", "logit_scale", "logit_softcap", "norm_eps", "residual_scale", "rope_magnitude", "rope_theta",
    "softcap", "window_theta", "z"};
constexpr std::string_view kFlags[] = {
    "attention_bias", "causal", "class_mean", "expert_sigmoid", "head", "head_bias", "mlm", "mlp_bias", "normalize",
    "o_bias", "output_bias", "pooler", "qkv_bias", "rope_half", "selection_bias", "tied"};
constexpr std::string_view kLists[] = {"expert_layers", "rope_layers", "windows"};

// Far above any model's; a graph of them takes seconds.
constexpr int64_t kMostBlocks = 4096;

}  // namespace

std::span<const ModelFamily> all_model_families() { return kFamilies; }

const ModelFamily* find_model_family(std::string_view name) {
  const auto at = std::ranges::find(kFamilies, name, &ModelFamily::name);
  return at == std::end(kFamilies) ? nullptr : &*at;
}

std::optional<ForeignName> gguf_name(std::string_view family, std::string_view parameter) {
  const ModelFamily* const found = find_model_family(family);
  return found == nullptr ? std::nullopt : found->gguf.find(parameter);
}

Result<ModelConfig> parse_shorthand(std::string_view text) {
  ModelConfig config;
  const size_t colon = text.find(':');
  config.family = trim(text.substr(0, colon));
  const ModelFamily* family = find_model_family(config.family);
  if (family == nullptr) return unknown_family(config.family);
  if (colon == std::string_view::npos) return config;

  for (const std::string& part : split(text.substr(colon + 1), ',')) {
    const size_t equals = part.find('=');
    const std::string key(trim(std::string_view(part).substr(0, equals)));
    const std::string_view value =
        equals == std::string::npos ? std::string_view() : trim(std::string_view(part).substr(equals + 1));
    const auto wrong = [&](std::string_view wanted) {
      return Status(StatusCode::kInvalidArgument, format("model '{}': found '{}', wanted {}; an example: {}",
                                                         text, trim(part), wanted, family->example));
    };
    if (config.sizes.contains(key) || config.reals.contains(key) || config.flags.contains(key) ||
        config.lists.contains(key))
      return wrong("each name once");
    if (std::ranges::find(kReals, key) != std::end(kReals)) {
      const auto real = parse_f64(value);
      if (!real) return wrong("a number");
      config.reals[key] = *real;
    } else if (std::ranges::find(kFlags, key) != std::end(kFlags)) {
      if (equals != std::string::npos && value != "0" && value != "1") return wrong("0 or 1");
      config.flags[key] = value != "0";
    } else if (std::ranges::find(kLists, key) != std::end(kLists)) {
      std::vector<int64_t>& list = config.lists[key];
      for (const std::string& item : split(value, '|')) {
        const auto number = parse_i64(item);
        if (!number) return wrong("numbers with | between them, one for each layer");
        list.push_back(*number);
      }
    } else {
      const auto size = parse_i64(value);
      if (key.empty() || !size) return wrong("NAME=COUNT");
      config.sizes[key] = *size;
    }
  }
  return config;
}

std::string to_text(const ModelConfig& config) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : config.sizes) parts.push_back(format("{}={}", name, size));
  for (const auto& [name, real] : config.reals) parts.push_back(format("{}={}", name, real));
  for (const auto& [name, flag] : config.flags) parts.push_back(format("{}={}", name, flag ? 1 : 0));
  for (const auto& [name, list] : config.lists) {
    std::vector<std::string> items;
    for (const int64_t item : list) items.push_back(to_text(item));
    parts.push_back(format("{}={}", name, join(items, "|")));
  }
  return config.family + (parts.empty() ? "" : ":") + join(parts, ",");
}

Result<Graph> build_model(const ModelConfig& config) {
  const ModelFamily* family = find_model_family(config.family);
  if (family == nullptr) return unknown_family(config.family);
  if (const auto blocks = config.sizes.find("L");
      blocks != config.sizes.end() && blocks->second > kMostBlocks)
    return Status(StatusCode::kUnsupported,
                  format("{}: L = {} blocks, wanted at most {}; an example: {}", config.family,
                         blocks->second, kMostBlocks, family->example));
  Result<Graph> graph = family->build(config);
  if (!graph.ok())
    return Status(graph.status().code(),
                  format("{}; an example: {}", graph.status().message(), family->example));
  return graph;
}

// Returns one more than the largest i of a parameter "block.<i>.…".
int64_t block_count(const Graph& graph) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.kind != TensorKind::kParameter || !tensor.name.starts_with("block.")) continue;
    const std::string_view rest = std::string_view(tensor.name).substr(6);
    count = std::max(count, parse_i64(rest.substr(0, rest.find('.'))).value_or(-1) + 1);
  }
  return count;
}

// GPT-2's scheme for the families of this folder, by the names of docs/reference/models.md: normal(0.02), and
// projections back onto the residual stream smaller by sqrt(2 L), so that its variance does not grow with
// depth. Other matrices get He's sqrt(2 / fan-in).
Initializer initializer_for(const Graph& graph, TensorId parameter, int64_t blocks) {
  const Tensor& tensor = graph.tensor(parameter);
  std::string_view name = tensor.name;
  if (name.ends_with(".bias")) return {Initializer::Kind::kZeros, 0};
  if (name == "rope_factors") return {Initializer::Kind::kOnes, 0};  // factor 1: frequencies stay unchanged
  if (name.ends_with(".weight")) name.remove_suffix(7);
  const std::string_view leaf = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  if (tensor.type.shape.rank() < 2)
    return {
        leaf.find("norm") != std::string_view::npos ? Initializer::Kind::kOnes : Initializer::Kind::kZeros,
        0};

  // Low-rank adapters start as zero: the second matrix
  // is zero, the first keeps the scale of its input.
  if (leaf == "lora_b") return {Initializer::Kind::kZeros, 0};
  if (leaf == "lora_a") {
    const auto read = static_cast<double>(std::max(tensor.type.shape[0], tensor.type.shape[1]));
    return {Initializer::Kind::kNormal, 1 / std::sqrt(read)};
  }

  constexpr double kStddev = 0.02;
  if (blocks > 0) {
    const bool residual = name.starts_with("block.") && (leaf == "o" || leaf == "down" || leaf == "proj");
    return {Initializer::Kind::kNormal,
            residual ? kStddev / std::sqrt(2.0 * static_cast<double>(blocks)) : kStddev};
  }
  const int64_t fan_in = tensor.type.shape[tensor.type.shape.rank() - 1];
  return {Initializer::Kind::kNormal, fan_in > 0 ? std::sqrt(2.0 / static_cast<double>(fan_in)) : kStddev};
}

}  // namespace tessera
