// Sampling settings recommended by a model's file: its metadata, and their keys in both formats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

// Metadata: a Hugging Face folder's generation_config.json, or GGUF's keys
// "general.sampling.*" as a JSON object, with Hugging Face's keys where GGUF has none.
inline constexpr std::string_view kGenerationConfigKey = "generation_config";

// GGUF's keys of samplers: general.sampling.*
inline constexpr std::string_view kSamplingPrefix = "general.sampling.";

// SamplingWord: a setting known to both formats.
struct SamplingWord {
  std::string_view huggingface, gguf;  // "temperature", "general.sampling.temp"
  bool is_integer;
};
std::span<const SamplingWord> sampling_words();

// The object of a generation_config.json without token ids, which
// belong to the tokenizer. Settings from GGUF are enabled (do_sample),
// except temperature 0, which disables it. Empty without such metadata.
Json huggingface_generation_config(std::string_view metadata);

// GgufSampling: the keys of a GGUF file.
struct GgufSampling {
  std::vector<std::pair<std::string, int64_t>> integers;
  std::vector<std::pair<std::string, double>> reals;
  std::vector<std::pair<std::string, std::string>> texts;
  std::string rest;  // settings that GGUF lacks, as JSON text; empty: none
};
GgufSampling gguf_sampling(std::string_view metadata);

}  // namespace tessera
