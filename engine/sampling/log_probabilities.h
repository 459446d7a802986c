// Log probabilities of tokens at one position, from the model's logits
// before penalties, masks and temperature, as in OpenAI's API and vLLM.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct TokenLogProbability {
  int32_t token = 0;
  double log_probability = 0;  // -inf for an excluded token
};

struct PositionLogProbabilities {
  TokenLogProbability own;                     // of the token at the position
  std::vector<TokenLogProbability> likeliest;  // likeliest first, the lower token on a tie
};

// logits [V], token in [0, V); `likeliest`: number of alternatives, at
// most V. Sums are in f64, in the order of tokens. `order` is scratch.
PositionLogProbabilities log_probabilities(std::span<const float> logits, int32_t token, int64_t likeliest,
                                           std::vector<int32_t>& order);

}  // namespace tessera
