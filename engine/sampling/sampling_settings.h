// SamplingSettings: how the tokens of one request are drawn (sampler.h says what each setting does and where it comes
// from), what ends its texts, and what is told about each token. Read from Options, whose keys are the members' names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/sampling/text_settings.h"
#include "graph/base/result.h"

namespace tessera {

// Limits of one request, so that none can be made to take memory or time without end.
inline constexpr size_t kMostStopBytes = 10000;  // of all stop texts
inline constexpr size_t kMostStopIds = 4096, kMostBiases = 4096;
inline constexpr int64_t kMostAlternatives = 20;  // log probabilities of a position
inline constexpr int64_t kMostTexts = 128;        // of a request

struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

struct SamplingSettings : TextSettings {
  double min_p = 0;               // 0: off
  double typical_p = 1;           // 1: off
  double repetition_penalty = 1;  // 1: off
  double presence_penalty = 0, frequency_penalty = 0;
  int64_t penalty_last = 0;           // tokens of the history that penalties see; 0: all
  std::vector<TokenBias> logit_bias;  // by token
  int64_t min_tokens = 0;
  int64_t logprobs = -1;         // likeliest tokens told of a position, with its own; -1: nothing
  int64_t prompt_logprobs = -1;  // the same of the prompt's positions
  int64_t n = 1;                 // texts that are given back
  int64_t best_of = 1;           // texts that are made, the n likeliest of which are given back
  bool ignore_eos = false;       // the model's end tokens do not end a text
};

// Options of one request; what they leave out is as in `otherwise`. kInvalidArgument names what was found and wanted.
Result<SamplingSettings> read_sampling_settings(const Options& options, const SamplingSettings& otherwise);
// The same as part of a larger set of options; then what is allowed one by one, and not together.
SamplingSettings read_sampling(OptionReader& reader, const SamplingSettings& otherwise);
Status check_together(const SamplingSettings& settings);
// The names of those options.
const std::vector<std::string>& sampling_option_names();

// kInvalidArgument where logit_bias names a token that a vocabulary of `vocabulary` tokens lacks. stop_ids may: such a
// token never comes.
Status check_tokens(const SamplingSettings& settings, int64_t vocabulary);

}  // namespace tessera
