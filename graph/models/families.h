// The builders behind the table of model families: one declaration and one row (model_family.cc) a family.
#pragma once

#include <span>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/foreign_names.h"
#include "graph/models/model_family.h"

namespace tessera {

Result<Graph> build_bert(const ModelConfig& config);
Result<Graph> build_distilbert(const ModelConfig& config);
Result<Graph> build_deepseek2(const ModelConfig& config);
Result<Graph> build_encoder(const ModelConfig& config);
Result<Graph> build_gemma(const ModelConfig& config);
Result<Graph> build_gemma2(const ModelConfig& config);
Result<Graph> build_gemma3(const ModelConfig& config);
Result<Graph> build_gpt2(const ModelConfig& config);
Result<Graph> build_gpt_oss(const ModelConfig& config);
Result<Graph> build_granite(const ModelConfig& config);
Result<Graph> build_llama(const ModelConfig& config);
Result<Graph> build_mlp(const ModelConfig& config);
Result<Graph> build_modernbert(const ModelConfig& config);
Result<Graph> build_moe(const ModelConfig& config);
Result<Graph> build_nomic_bert(const ModelConfig& config);
Result<Graph> build_olmo2(const ModelConfig& config);
Result<Graph> build_phi3(const ModelConfig& config);
Result<Graph> build_qwen2(const ModelConfig& config);
Result<Graph> build_qwen2moe(const ModelConfig& config);
Result<Graph> build_qwen3(const ModelConfig& config);
Result<Graph> build_qwen3moe(const ModelConfig& config);
Result<Graph> build_roberta(const ModelConfig& config);
Result<Graph> build_smollm3(const ModelConfig& config);

// The sizes of Gemma 2 and 3; every `full_every`th layer has no window.
DecoderSizes later_gemma_sizes(ConfigReader& reader, size_t full_every);
DecoderSizes deepseek2_sizes(ConfigReader& reader);
DecoderSizes gemma_sizes(ConfigReader& reader);
DecoderSizes gemma2_sizes(ConfigReader& reader);
DecoderSizes gemma3_sizes(ConfigReader& reader);
DecoderSizes gpt_oss_sizes(ConfigReader& reader);
DecoderSizes granite_sizes(ConfigReader& reader);
DecoderSizes llama_sizes(ConfigReader& reader);
DecoderSizes moe_sizes(ConfigReader& reader);
DecoderSizes olmo2_sizes(ConfigReader& reader);
DecoderSizes phi3_sizes(ConfigReader& reader);
DecoderSizes qwen2_sizes(ConfigReader& reader);
DecoderSizes qwen2moe_sizes(ConfigReader& reader);
DecoderSizes qwen3_sizes(ConfigReader& reader);
DecoderSizes qwen3moe_sizes(ConfigReader& reader);
DecoderSizes smollm3_sizes(ConfigReader& reader);

EncoderSizes bert_sizes(ConfigReader& reader);
EncoderSizes distilbert_sizes(ConfigReader& reader);
EncoderSizes modernbert_sizes(ConfigReader& reader);
EncoderSizes nomic_bert_sizes(ConfigReader& reader);
EncoderSizes plain_encoder_sizes(ConfigReader& reader);
EncoderSizes roberta_sizes(ConfigReader& reader);

// Names of families that differ from Llama's (decoder.h).
extern const std::span<const NameRule> kMixtralNames, kGemmaNames, kGemma2Names, kOlmo2Names;
extern const std::span<const NameRule> kPhi3HuggingfaceNames, kPhi3GgufNames;
extern const std::span<const NameRule> kQwen2moeHuggingfaceNames, kQwen2moeGgufNames;
extern const std::span<const NameRule> kDeepseek2HuggingfaceNames, kDeepseek2GgufNames;
extern const std::span<const NameRule> kGptOssHuggingfaceNames, kGptOssGgufNames;
extern const std::span<const NameRule> kGpt2HuggingfaceNames, kGpt2GgufNames;
// Names of families that differ from BERT's (encoder.h).
extern const std::span<const NameRule> kBertGgufNames, kRobertaHuggingfaceNames, kRobertaGgufNames;
extern const std::span<const NameRule> kDistilbertHuggingfaceNames, kModernbertHuggingfaceNames;
extern const std::span<const NameRule> kModernbertGgufNames, kNomicBertHuggingfaceNames, kNomicBertGgufNames;

}  // namespace tessera
