#include "engine/sampling/approximate_draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <span>

namespace tessera {
namespace {

using sampling::Choice, sampling::Logits;

typedef float Floats __attribute__((vector_size(16)));
typedef uint32_t Ints __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4, kChains = 4;

// 2^x for x in [-126, 0], within 3.5e-7: the nearest integer becomes the exponent, the rest
// a Taylor polynomial of degree 6, whose remainder is at most (ln 2 / 2)^7 / 7! = 1.2e-7.
Floats exp2_of(Floats x) {
  constexpr float kRound = 0x1.8p23f;
  const Floats shifted = x + kRound;
  const Floats f = x - (shifted - kRound);
  Floats p = f * 1.540353039e-4f + 1.333355815e-3f;
  p = p * f + 9.618129108e-3f;
  p = p * f + 5.550410866e-2f;
  p = p * f + 2.402265070e-1f;
  p = p * f + 6.931471806e-1f;
  p = p * f + 1.0f;
  Ints exponent, bits;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  std::memcpy(&bits, &p, sizeof bits);
  bits += exponent << 23;  // the shift removes the high bits of kRound
  std::memcpy(&p, &bits, sizeof p);
  return p;
}

// BlockSum: sums of weights w = 2^x, and of w * -x.
struct BlockSum {
  double weight = 0, bits = 0;
};

// One block of kBlockTokens.
BlockSum sum_block(const float* logits, float top, float scale) {
  Floats weight[kChains] = {}, bits[kChains] = {};
  for (int64_t token = 0; token < WeightSums::kBlockTokens; token += kLanes * kChains)
    for (int64_t chain = 0; chain < kChains; ++chain) {
      Floats x;
      std::memcpy(&x, logits + token + chain * kLanes, sizeof x);
      x = (x - top) * scale;
      x = x > -126.0f ? x : Floats{} - 126.0f;  // also for NaN
      const Floats w = exp2_of(x);
      weight[chain] += w;
      bits[chain] -= w * x;
    }
  BlockSum sum;
  for (int64_t chain = 0; chain < kChains; ++chain)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sum.weight += double(weight[chain][lane]);
      sum.bits += double(bits[chain][lane]);
    }
  return sum;
}

// A number that orders like sampling::Logits::before.
uint64_t sort_key(float logit, int32_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 is 0
  const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{~ascending} << 32 | static_cast<uint32_t>(token);
}

// Keys of tokens with a logit of at least `least`; empty if they exceed `most`.
std::vector<uint64_t> collect(Logits<float> logits, float least, size_t most) {
  constexpr int64_t kGroup = 16;
  std::vector<uint64_t> keys;
  int64_t token = 0;
  const auto add = [&](int64_t of) {
    if (logits.values[of] >= least) keys.push_back(sort_key(logits.values[of], static_cast<int32_t>(of)));
  };
  for (; token + kGroup <= logits.V && keys.size() <= most; token += kGroup) {
    int32_t above = 0;
    for (int64_t i = 0; i < kGroup; ++i) above |= logits.values[token + i] >= least ? 1 : 0;
    if (above != 0)
      for (int64_t i = 0; i < kGroup; ++i) add(token + i);
  }
  for (; token < logits.V && keys.size() <= most; ++token) add(token);
  if (keys.size() > most) keys.clear();
  return keys;
}

// Draws among all tokens, in numeric order.
std::optional<int32_t> draw_of_all(Logits<float> logits, double top, const Choice& choice,
                                   const WeightSums& sums, std::span<const double> blocks) {
  const double drawn = choice.uniform * sums.total, margin = 2 * sums.error;
  double before = 0;
  size_t block = 0;
  while (block + 1 < blocks.size() && before + blocks[block] <= drawn) before += blocks[block++];
  const int64_t begin = static_cast<int64_t>(block) * WeightSums::kBlockTokens;
  const int64_t end = std::min(logits.V, begin + WeightSums::kBlockTokens);
  for (int64_t token = begin; token < end; ++token) {
    const double after = before + sampling::weight_of(top - logits.logit(token), choice.temperature);
    if (after > drawn) {
      if (drawn - before > margin && after - drawn > margin) return static_cast<int32_t>(token);
      return std::nullopt;
    }
    before = after;
  }
  return std::nullopt;
}

// Draws from the shortest prefix, likeliest first, that reaches top_p. `sums.error`
// bounds the error of the total; the prefix's weights are exact except for rounding.
std::optional<int32_t> draw_of_head(Logits<float> logits, double top, const Choice& choice,
                                    const WeightSums& sums) {
  constexpr size_t kMostTokens = 4096;
  constexpr double kRounding = 1e-11;
  const double wanted = choice.top_p * sums.total,
               margin = choice.top_p * sums.error + kRounding * sums.total;
  // Tokens below the last threshold weigh less in all than the prefix leaves out; most rows need only the first threshold.
  const double rest = (1 - choice.top_p) * sums.total - sums.error;
  if (!(rest > 0)) return std::nullopt;
  std::vector<double> reached;
  for (const double bar : {std::max(rest / 4096, rest / double(logits.V)), rest / double(logits.V)}) {
    const float least = static_cast<float>(top + choice.temperature * std::log(std::min(bar, 1.0)));
    std::vector<uint64_t> keys = collect(logits, std::nextafter(least, -INFINITY), kMostTokens);
    std::sort(keys.begin(), keys.end());
    const auto token_of = [&](size_t i) { return static_cast<int32_t>(keys[i] & 0xffffffffu); };
    reached.clear();
    double sum = 0;
    while (reached.size() < keys.size() && sum < wanted + margin) {
      sum += sampling::weight_of(top - logits.logit(token_of(reached.size())), choice.temperature);
      reached.push_back(sum);
    }
    const auto is_near = [](double a, double b, double distance) { return std::abs(a - b) <= distance; };
    const auto passes = [&](double limit) {
      return static_cast<size_t>(std::ranges::lower_bound(reached, limit) - reached.begin());
    };
    const size_t last = passes(wanted);
    if (last == reached.size()) continue;  // too few
    if (is_near(reached[last], wanted, margin) || (last > 0 && is_near(reached[last - 1], wanted, margin)))
      return std::nullopt;
    const double drawn = choice.uniform * reached[last], rounding = kRounding * reached[last];
    const size_t token = passes(drawn);
    if ((token < last && is_near(reached[token], drawn, rounding)) ||
        (token > 0 && is_near(reached[token - 1], drawn, rounding)))
      return std::nullopt;
    return token_of(token);
  }
  return std::nullopt;
}

}  // namespace

// Errors: three roundings of x at 2^-24 give |x| * 1.3e-7 of the weight; exp2_of
// 3.5e-7; 16 f32 additions per lane 9.6e-7; weights below 2^-126 nothing.
WeightSums sum_weights(Logits<float> logits, double top, double temperature, std::vector<double>& blocks) {
  const float scale = static_cast<float>(std::numbers::log2e / temperature);
  WeightSums sums;
  double bits = 0;
  blocks.clear();
  const auto add = [&](const float* block) {
    const BlockSum sum = sum_block(block, static_cast<float>(top), scale);
    blocks.push_back(sum.weight);
    sums.total += sum.weight;
    bits += sum.bits;
  };
  int64_t token = 0;
  for (; token + WeightSums::kBlockTokens <= logits.V; token += WeightSums::kBlockTokens)
    add(logits.values + token);
  if (token < logits.V) {
    float rest[WeightSums::kBlockTokens];
    std::fill_n(rest, WeightSums::kBlockTokens, -std::numeric_limits<float>::infinity());
    std::copy(logits.values + token, logits.values + logits.V, rest);
    add(rest);
  }
  sums.error = 2e-6 * sums.total + 1.5e-7 * bits;
  return sums;
}

std::optional<int32_t> draw_approximately(Logits<float> logits, double top, const Choice& choice,
                                       std::vector<double>& blocks) {
  if (choice.temperature < kMinTemperature) return std::nullopt;
  const WeightSums sums = sum_weights(logits, top, choice.temperature, blocks);
  if (choice.top_p < 1) return draw_of_head(logits, top, choice, sums);
  return draw_of_all(logits, top, choice, sums, blocks);
}

}  // namespace tessera
