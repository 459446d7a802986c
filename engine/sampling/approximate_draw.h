// Draws by approximate weights, at a third of the cost of exact exponentials, from all tokens or
// the top_p prefix. If their error cannot change the token, it equals that of sampling::draw_token.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/base/token_draw.h"

namespace tessera {

// WeightSums: the total weight of a row, within `error`, as are its prefix sums.
struct WeightSums {
  static constexpr int64_t kBlockTokens = 256;

  double total = 0, error = 0;
};

// `blocks` receives the sums of kBlockTokens tokens each. The temperature is at least kMinTemperature.
inline constexpr double kMinTemperature = 1e-3;
WeightSums sum_weights(sampling::Logits<float> logits, double top, double temperature,
                       std::vector<double>& blocks);

// nullopt: an exact draw is needed. `choice` has no top_k; `top` is finite.
std::optional<int32_t> draw_approximately(sampling::Logits<float> logits, double top,
                                       const sampling::Choice& choice, std::vector<double>& blocks);

}  // namespace tessera
