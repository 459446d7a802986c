// Scale search: least squares for the scale of a group of N elements. A scale gives each element
// its nearest level, and given the levels the best scale is a quotient of sums. The best of some
// starting scales is improved by both steps in turn until the error stays the same.
//
// Sums are made lane by lane and joined in one order, so codes are the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "graph/base/blocks/block_scale.h"

namespace tessera {

using FloatLanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline FloatLanes all_lanes(float value) { return FloatLanes{value, value, value, value}; }
inline FloatLanes load_lanes(const float* from) {
  FloatLanes value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store_lanes(float* to, FloatLanes value) { std::memcpy(to, &value, sizeof value); }
inline float sum_lanes(FloatLanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline FloatLanes clamp_lanes(FloatLanes v, float low, float high) {
  v = v < low ? all_lanes(low) : v;
  return v > high ? all_lanes(high) : v;
}
// Rounds to integers, ties to even; for magnitudes below 2^22.
inline FloatLanes round_lanes(FloatLanes v) {
  const FloatLanes magic = all_lanes(12582912.0f);  // 1.5 * 2^23: the last place of a sum is 1
  return (v + magic) - magic;
}

// Levels low, low + 1, ..., high.
struct EvenLevels {
  float low, high;
  FloatLanes nearest(FloatLanes y) const { return round_lanes(clamp_lanes(y, low, high)); }
};

// Starting scales map the largest magnitude of a group to this many steps of the levels.
struct ScaleRange {
  float first, last;
  int count;
  bool both_signs = true;  // for levels that differ on the sides of zero
};

template <int N>
float largest_magnitude(const float* x) {
  float largest = 0;
  for (int i = 0; i < N; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  return largest;
}

struct ScaleFit {
  float scale = 0;
  float gain = 0;     // reduction of the weighted squared error from that of zeros
  float squares = 0;  // sum of weights * level^2
};

// Returns the fit for sums of weights * x * level and of weights * level^2.
inline ScaleFit fit_from_sums(float products, float squares) {
  if (!(squares > 0.0f)) return {};
  return {products / squares, products * (products / squares), squares};
}

// Finds the best scale for the levels nearest to x * inverse_scale.
template <int N, class Levels>
ScaleFit fit_scale(const float* x, const float* weights, const Levels& levels, float inverse_scale) {
  FloatLanes products = all_lanes(0), squares = all_lanes(0);
  for (int i = 0; i < N; i += kLanes) {
    const FloatLanes value = load_lanes(x + i), level = levels.nearest(value * inverse_scale);
    const FloatLanes weighted = load_lanes(weights + i) * level;
    products += weighted * value;
    squares += weighted * level;
  }
  return fit_from_sums(sum_lanes(products), sum_lanes(squares));
}

// Finds the best scale for given levels.
template <int N>
ScaleFit fit_levels(const float* x, const float* weights, const float* levels) {
  FloatLanes products = all_lanes(0), squares = all_lanes(0);
  for (int i = 0; i < N; i += kLanes) {
    const FloatLanes level = load_lanes(levels + i), weighted = load_lanes(weights + i) * level;
    products += weighted * load_lanes(x + i);
    squares += weighted * level;
  }
  return fit_from_sums(sum_lanes(products), sum_lanes(squares));
}

constexpr float kLeastMagnitude = 1e-30f;  // far below the resolution of an f16 scale
constexpr int kScaleRefinements = 3;

template <int N, class Levels>
ScaleFit search_scale(const float* x, const float* weights, const Levels& levels, ScaleRange range) {
  const float largest = largest_magnitude<N>(x);
  if (largest < kLeastMagnitude) return {};
  ScaleFit best;
  const float step = (range.last - range.first) / static_cast<float>(range.count - 1);
  for (int k = 0; k < range.count; ++k) {
    const float start = (range.first + step * static_cast<float>(k)) / largest;
    for (int sign = 1; sign >= (range.both_signs ? -1 : 1); sign -= 2) {
      const ScaleFit fit = fit_scale<N>(x, weights, levels, static_cast<float>(sign) * start);
      if (fit.gain > best.gain) best = fit;
    }
  }
  for (int k = 0; k < kScaleRefinements; ++k) {
    const ScaleFit fit = fit_scale<N>(x, weights, levels, inverse_or_zero(best.scale));
    if (!(fit.gain > best.gain)) break;
    best = fit;
  }
  return best;
}

// Rounds x to levels times `scale`; returns the levels and the weighted squared error.
template <int N, class Levels>
float round_scaled(const float* x, const float* weights, const Levels& levels, float scale, float* chosen) {
  FloatLanes error = all_lanes(0);
  const float inverse_scale = inverse_or_zero(scale);
  for (int i = 0; i < N; i += kLanes) {
    const FloatLanes value = load_lanes(x + i), level = levels.nearest(value * inverse_scale);
    const FloatLanes difference = value - level * scale;
    error += load_lanes(weights + i) * difference * difference;
    store_lanes(chosen + i, level);
  }
  return sum_lanes(error);
}

}  // namespace tessera
