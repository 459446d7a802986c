// How a model's file recommends to draw texts: metadata of models, and its words in either format.
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

// The metadata that holds it: the text of a Hugging Face folder's generation_config.json, or the keys
// "general.sampling.*" of a GGUF file as a JSON object, with what that format has no keys for in the words of the former.
inline constexpr std::string_view kGenerationConfigKey = "generation_config";

// GGUF's keys of samplers: general.sampling.*
inline constexpr std::string_view kSamplingPrefix = "general.sampling.";

// Settings that both formats have a word for.
struct SamplingWord {
  std::string_view huggingface, gguf;  // "temperature", "general.sampling.temp"
  bool is_integer;
};
std::span<const SamplingWord> sampling_words();

// The object of a generation_config.json without ids of tokens, which are the tokenizer's to say. A GGUF file's
// settings are set to be obeyed (do_sample), except temperature 0, which is do_sample false.
// An object that the metadata are not is empty.
Json huggingface_generation_config(std::string_view metadata);

// The keys of a GGUF file.
struct GgufSampling {
  std::vector<std::pair<std::string, int64_t>> integers;
  std::vector<std::pair<std::string, double>> reals;
  std::vector<std::pair<std::string, std::string>> texts;
  std::string rest;  // what the format has no keys for, as JSON text; empty: nothing is recommended
};
GgufSampling gguf_sampling(std::string_view metadata);

}  // namespace tessera
