// Affine search: as scale_search.h, for groups whose elements are multiples of a scale above a minimum.
#pragma once

#include "graph/base/blocks/scale_search.h"

namespace tessera {

// Sums over a group whose elements have levels q of a scale, above a minimum.
struct AffineSums {
  float error;      // of scale * q - min: weighted, squared
  float q, qq, xq;  // sums of weights * q, * q^2, * x q
};

// `levels`, if not null, receives each element's level.
template <int N>
AffineSums round_affine(const float* x, const float* weights, float high, float scale, float min,
                        float* levels = nullptr) {
  FloatLanes error = all_lanes(0), q = all_lanes(0), qq = all_lanes(0), xq = all_lanes(0);
  const float inverse_scale = inverse_or_zero(scale);
  for (int i = 0; i < N; i += kLanes) {
    const FloatLanes value = load_lanes(x + i), weight = load_lanes(weights + i);
    const FloatLanes level = round_lanes(clamp_lanes((value + min) * inverse_scale, 0.0f, high));
    const FloatLanes difference = value - (level * scale - min), weighted = weight * level;
    error += weight * difference * difference;
    q += weighted;
    qq += weighted * level;
    xq += weighted * value;
    if (levels != nullptr) store_lanes(levels + i, level);
  }
  return {sum_lanes(error), sum_lanes(q), sum_lanes(qq), sum_lanes(xq)};
}

struct AffineFit {
  float scale = 0, min = 0;  // x is about scale * q - min
  float gain = 0;            // reduction of the weighted squared error from that of the mean alone
};

template <int N>
struct AffineGroup {
  float high;            // levels are 0 to high
  bool min_is_positive;  // min >= 0; else it has either sign
  float weight_sum, mean, lowest, highest;
  float centred[N];  // x less its mean

  AffineGroup(const float* x, const float* weights, float high_level, bool positive)
      : high(high_level), min_is_positive(positive) {
    FloatLanes w = all_lanes(0), wx = all_lanes(0);
    for (int i = 0; i < N; i += kLanes) {
      w += load_lanes(weights + i);
      wx += load_lanes(weights + i) * load_lanes(x + i);
    }
    weight_sum = sum_lanes(w);
    mean = sum_lanes(wx) / weight_sum;
    lowest = highest = mean;
    for (int i = 0; i < N; ++i) {
      centred[i] = x[i] - mean;
      lowest = x[i] < lowest ? x[i] : lowest;
      highest = x[i] > highest ? x[i] : highest;
    }
  }

  // Finds the best scale and minimum for the levels nearest to (x + min) * inverse_scale.
  AffineFit fit(const float* weights, float min, float inverse_scale) const {
    FloatLanes q = all_lanes(0), qq = all_lanes(0), xq = all_lanes(0);
    const float shift = mean + min;
    for (int i = 0; i < N; i += kLanes) {
      const FloatLanes value = load_lanes(centred + i);
      const FloatLanes level = round_lanes(clamp_lanes((value + shift) * inverse_scale, 0.0f, high));
      const FloatLanes weighted = load_lanes(weights + i) * level;
      q += weighted;
      qq += weighted * level;
      xq += weighted * value;
    }
    const float sq = sum_lanes(q), sqq = sum_lanes(qq), sxq = sum_lanes(xq);
    const float variance = sqq - sq * sq / weight_sum;
    if (!(variance > 1e-6f * sqq)) return {};  // all on one level, to the precision of f32
    AffineFit result;
    result.scale = sxq / variance;
    result.min = result.scale * sq / weight_sum - mean;
    result.gain = sxq * result.scale;
    if (min_is_positive && result.min < 0.0f) {
      const float product = sxq + mean * sq;
      result.scale = product / sqq;
      result.min = 0;
      result.gain = product * result.scale - mean * mean * weight_sum;
    }
    return result;
  }
};

// Starting scales cover the range from the least to the greatest element in so many steps.
template <int N>
AffineFit search_affine(const float* x, const float* weights, float high, bool min_is_positive,
                        ScaleRange range) {
  const AffineGroup<N> group(x, weights, high, min_is_positive);
  const float lowest = min_is_positive && group.lowest > 0.0f ? 0.0f : group.lowest;
  AffineFit best;
  // One value for all elements: the mean, as a minimum or as the highest level.
  best.min = min_is_positive && group.mean > 0.0f ? 0.0f : -group.mean;
  best.scale = min_is_positive && group.mean > 0.0f ? group.mean / high : 0.0f;
  const float extent = group.highest - lowest;
  if (extent < kLeastMagnitude) return best;
  const float step = (range.last - range.first) / static_cast<float>(range.count - 1);
  for (int k = 0; k < range.count; ++k) {
    const float start = (range.first + step * static_cast<float>(k)) / extent;
    const AffineFit fit = group.fit(weights, -lowest, start);
    if (fit.gain > best.gain) best = fit;
  }
  for (int k = 0; k < kScaleRefinements; ++k) {
    const AffineFit fit = group.fit(weights, best.min, inverse_or_zero(best.scale));
    if (!(fit.gain > best.gain)) break;
    best = fit;
  }
  return best;
}

}  // namespace tessera
