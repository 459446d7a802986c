// Log probabilities of tokens at one position, of the logits as the model gives them, before penalties, masks and
// temperature: as OpenAI's API and vLLM tell them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct TokenLogProbability {
  int32_t token = 0;
  double log_probability = 0;  // -inf for a token that the model excludes
};

struct PositionLogProbabilities {
  TokenLogProbability own;                     // of the token that is at the position
  std::vector<TokenLogProbability> likeliest;  // likeliest first, the lower token on a tie
};

// logits [V], token in [0, V); `likeliest`: how many, at most V are told. Sums are in f64, in the order of tokens.
// `order` is scratch.
PositionLogProbabilities log_probabilities(std::span<const float> logits, int32_t token, int64_t likeliest,
                                           std::vector<int32_t>& order);

}  // namespace tessera
