// Affine groups: an encoder for blocks of groups whose scales and minima are integers times two f16 factors.
// As in scaled_groups.h: each group's own best pair first, then integers, levels and factors in turn.
#pragma once

#include <cstdint>

#include "graph/base/blocks/affine_search.h"
#include "graph/base/blocks/scale_search.h"
#include "graph/base/blocks/scaled_groups.h"

namespace tessera {

template <int Groups, int N>
struct AffineGroups {
  uint16_t d = 0, dmin = 0;
  int scales[Groups] = {}, mins[Groups] = {};
  float levels[Groups * N];
};

// One group under given factors: its integers, levels and error.
template <int N>
struct AffineChoice {
  int scale = 0, min = 0;
  AffineSums sums{-1, 0, 0, 0};

  AffineSums try_pair(const float* x, const float* weights, float high, float d, float dmin, int tried_scale,
                      int tried_min) {
    const AffineSums tried = round_affine<N>(x, weights, high, d * static_cast<float>(tried_scale),
                                             dmin * static_cast<float>(tried_min));
    if (sums.error < 0.0f || tried.error < sums.error) *this = {tried_scale, tried_min, tried};
    return tried;
  }
};

template <int N>
AffineChoice<N> choose_affine(const float* x, const float* weights, float weight_sum, float weighted_x,
                              float high, float d, float dmin, const AffineFit& own, int highest) {
  AffineChoice<N> best;
  const int scale = clamp_round(own.scale * inverse_or_zero(d), 0, highest);
  const int min = clamp_round(own.min * inverse_or_zero(dmin), 0, highest);
  for (int tried = scale > 0 ? scale - 1 : 0; tried <= scale + 1 && tried <= highest; ++tried) {
    const AffineSums sums = best.try_pair(x, weights, high, d, dmin, tried, min);
    // The minimum that is best for the levels at this scale.
    const float moved_min = (d * static_cast<float>(tried) * sums.q - weighted_x) / weight_sum;
    const int moved = clamp_round(moved_min * inverse_or_zero(dmin), 0, highest);
    if (moved != min) best.try_pair(x, weights, high, d, dmin, tried, moved);
  }
  return best;
}

template <int Groups, int N>
AffineGroups<Groups, N> encode_affine_groups(const float* x, const float* weights, float high,
                                             ScaleRange range, int highest) {
  AffineFit own[Groups];
  float scales[Groups], mins[Groups], scale_weights[Groups], weight_sums[Groups], weighted_x[Groups];
  for (int g = 0; g < Groups; ++g) {
    const float *group = x + g * N, *group_weights = weights + g * N;
    own[g] = search_affine<N>(group, group_weights, high, true, range);
    const AffineSums sums = round_affine<N>(group, group_weights, high, own[g].scale, own[g].min);
    FloatLanes w = all_lanes(0), wx = all_lanes(0);
    for (int i = 0; i < N; i += kLanes) {
      w += load_lanes(group_weights + i);
      wx += load_lanes(group_weights + i) * load_lanes(group + i);
    }
    weight_sums[g] = sum_lanes(w);
    weighted_x[g] = sum_lanes(wx);
    scales[g] = own[g].scale;
    mins[g] = own[g].min;
    scale_weights[g] = sums.qq;
  }
  const auto top = static_cast<float>(highest);
  const ScaleRange factors{top * 0.9f, top * 1.1f, 21, false};
  float d = search_scale<Groups>(scales, scale_weights, EvenLevels{0, top}, factors).scale;
  float dmin = search_scale<Groups>(mins, weight_sums, EvenLevels{0, top}, factors).scale;
  AffineGroups<Groups, N> best;
  float least = -1;
  for (int round = 0; round < kGroupRounds; ++round) {
    AffineGroups<Groups, N> tried;
    tried.d = f16_scale(d);
    tried.dmin = f16_scale(dmin);
    d = f32_from_f16(tried.d);
    dmin = f32_from_f16(tried.dmin);
    float error = 0;
    // Normal equations of sum weights * (x - d * scale * q + dmin * min)^2.
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int g = 0; g < Groups; ++g) {
      const auto choice = choose_affine<N>(x + g * N, weights + g * N, weight_sums[g], weighted_x[g], high, d,
                                           dmin, own[g], highest);
      const double scale = choice.scale, min = choice.min;
      tried.scales[g] = choice.scale;
      tried.mins[g] = choice.min;
      error += choice.sums.error;
      aa += scale * scale * choice.sums.qq;
      ab += scale * min * choice.sums.q;
      bb += min * min * weight_sums[g];
      ax += scale * choice.sums.xq;
      bx += min * weighted_x[g];
    }
    if (least >= 0.0f && !(error < least)) break;
    least = error;
    best = tried;
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
      d = static_cast<float>((ax * bb - bx * ab) / determinant);
      dmin = static_cast<float>((ax * ab - bx * aa) / determinant);
    } else if (aa > 0) {
      d = static_cast<float>(ax / aa);
    }
    if (!(d > 0.0f) || dmin < 0.0f) break;
  }
  d = f32_from_f16(best.d);
  dmin = f32_from_f16(best.dmin);
  for (int g = 0; g < Groups; ++g) {
    round_affine<N>(x + g * N, weights + g * N, high, d * static_cast<float>(best.scales[g]),
                    dmin * static_cast<float>(best.mins[g]), best.levels + g * N);
  }
  return best;
}

}  // namespace tessera
