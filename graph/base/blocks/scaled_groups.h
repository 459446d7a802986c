// Scaled groups: an encoder for blocks of groups whose scales are integers times one f16 factor. It searches
// each group's own best scale first; then it improves integer scales, levels and the factor in turn.
#pragma once

#include <cstdint>

#include "graph/base/blocks/scale_search.h"

namespace tessera {

constexpr int kGroupRounds = 4;  // of integers and factors; further rounds have no measurable gain

template <int Groups, int N>
struct ScaledGroups {
  uint16_t d = 0;
  int scales[Groups] = {};
  float levels[Groups * N];
};

inline int clamp_round(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  return value >= static_cast<float>(high) ? high : static_cast<int>(std::floor(value + 0.5f));
}

template <int Groups, int N, class Levels>
ScaledGroups<Groups, N> encode_scaled_groups(const float* x, const float* weights, const Levels& levels,
                                             ScaleRange range, int lowest_scale, int highest_scale) {
  float own[Groups], own_weights[Groups];
  for (int g = 0; g < Groups; ++g) {
    const ScaleFit fit = search_scale<N>(x + g * N, weights + g * N, levels, range);
    own[g] = fit.scale;
    own_weights[g] = fit.squares;
  }
  const auto high = static_cast<float>(highest_scale);
  float factor = search_scale<Groups>(own, own_weights, EvenLevels{static_cast<float>(lowest_scale), high},
                                      {high - 3, high + 2, 21})
                     .scale;
  ScaledGroups<Groups, N> best;
  float least = -1;
  for (int round = 0; round < kGroupRounds; ++round) {
    ScaledGroups<Groups, N> tried;
    tried.d = f16_scale(factor);
    const float d = f32_from_f16(tried.d), inverse_d = inverse_or_zero(d);
    float error = 0, products = 0, squares = 0;
    for (int g = 0; g < Groups; ++g) {
      const int middle = clamp_round(own[g] * inverse_d, lowest_scale, highest_scale);
      float group_least = -1, chosen[N];
      for (int scale = middle - 1; scale <= middle + 1; ++scale) {
        if (scale < lowest_scale || scale > highest_scale) continue;
        const float group_error =
            round_scaled<N>(x + g * N, weights + g * N, levels, d * static_cast<float>(scale), chosen);
        if (group_least >= 0.0f && !(group_error < group_least)) continue;
        group_least = group_error;
        tried.scales[g] = scale;
        std::memcpy(tried.levels + g * N, chosen, sizeof chosen);
      }
      error += group_least;
      const ScaleFit fit = fit_levels<N>(x + g * N, weights + g * N, tried.levels + g * N);
      const auto scale = static_cast<float>(tried.scales[g]);
      products += scale * fit.scale * fit.squares;
      squares += scale * scale * fit.squares;
      if (tried.scales[g] != 0 && fit.squares > 0.0f) own[g] = fit.scale;
    }
    if (least >= 0.0f && !(error < least)) break;
    least = error;
    best = tried;
    if (!(squares > 0.0f)) break;
    factor = products / squares;
  }
  return best;
}

}  // namespace tessera
