// Draws from all tokens of a row, or from the head that reaches top_p, by approximate weights, which cost a third of exact
// exponentials: where their error is too small to change the token, it is the one that sampling::draw_token draws.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/base/token_draw.h"

namespace tessera {

// Sums of the weights of a row, within `error` of what they are; so is every sum of the first blocks.
struct WeightSums {
  static constexpr int64_t kBlockTokens = 256;

  double total = 0, error = 0;
};

// `blocks` becomes the sums of each kBlockTokens tokens. The temperature is at least kMinTemperature.
inline constexpr double kMinTemperature = 1e-3;
WeightSums sum_weights(sampling::Logits<float> logits, double top, double temperature,
                       std::vector<double>& blocks);

// nullopt: the token has to be drawn exactly. `choice` does not cut to top_k, `top` is finite.
std::optional<int32_t> draw_approximately(sampling::Logits<float> logits, double top,
                                       const sampling::Choice& choice, std::vector<double>& blocks);

}  // namespace tessera
