// SamplingSettings: settings of a request's draws (sampler.h defines each), its stop
// conditions, and its log probabilities. Read from Options, whose keys are the members' names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/sampling/text_settings.h"
#include "graph/base/result.h"

namespace tessera {

// Limits of one request, which bound its memory and time.
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
  int64_t penalty_last = 0;           // history length of penalties; 0: all
  std::vector<TokenBias> logit_bias;  // by token
  int64_t min_tokens = 0;
  int64_t logprobs = -1;         // alternatives per position, in addition to the token's own; -1: none
  int64_t prompt_logprobs = -1;  // likewise, for the prompt
  int64_t n = 1;                 // texts to return
  int64_t best_of = 1;           // texts to generate, of which the n likeliest are returned
  bool ignore_eos = false;       // the model's end tokens do not end a text
};

// Reads one request's options; `otherwise` has the defaults. kInvalidArgument names what was found and wanted.
Result<SamplingSettings> read_sampling_settings(const Options& options, const SamplingSettings& otherwise);
// Reads them as part of a larger set; checks values one by one, then in combination.
SamplingSettings read_sampling(OptionReader& reader, const SamplingSettings& otherwise);
Status check_together(const SamplingSettings& settings);
// The names of those options.
const std::vector<std::string>& sampling_option_names();

// kInvalidArgument if logit_bias names a token outside the
// vocabulary. stop_ids may: such a token never occurs.
Status check_tokens(const SamplingSettings& settings, int64_t vocabulary);

}  // namespace tessera
