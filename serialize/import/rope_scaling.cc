#include "serialize/import/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "text/json.h"

namespace tessera {
namespace {

double frequency(const Rotation& rotation, int64_t pair) {
  return std::pow(rotation.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotation.rotated));
}

// An integer if the value is one, as classes require.
Json tokens(double count) {
  return count == std::floor(count) ? Json(static_cast<int64_t>(count)) : Json(count);
}

}  // namespace

bool RopeScaling::is_neutral() const {
  const auto is_one = [](float factor) { return factor == 1; };
  return magnitude == 1 && std::ranges::all_of(factors, is_one) && std::ranges::all_of(longer, is_one);
}

void RopeScaling::describe(ModelConfig& config) const {
  config.sizes["rope_rows"] = longer.empty() ? 1 : 2;
  if (!longer.empty()) config.sizes["rope_switch"] = switch_at;
  if (magnitude != 1) config.reals["rope_magnitude"] = magnitude;
}

HostTensor RopeScaling::values() const {
  std::vector<float> all = factors;
  all.insert(all.end(), longer.begin(), longer.end());
  const auto pairs = static_cast<int64_t>(factors.size());
  return HostTensor::copy_of<float>({DType::kF32, {longer.empty() ? 1 : 2, pairs}}, all);
}

RopeScaling linear_scaling(const Rotation& rotation, double factor) {
  RopeScaling scaling;
  scaling.factors.assign(static_cast<size_t>(rotation.rotated / 2), static_cast<float>(factor));
  return scaling;
}

RopeScaling llama3_scaling(const Rotation& rotation, const Llama3Scaling& s) {
  RopeScaling scaling;
  for (int64_t pair = 0; pair < rotation.rotated / 2; ++pair) {
    const double wave = 2 * std::numbers::pi / frequency(rotation, pair);
    double factor = 1;
    if (wave > s.original_context / s.low) {
      factor = s.factor;
    } else if (wave >= s.original_context / s.high) {
      const double blend = (s.original_context / wave - s.low) / (s.high - s.low);
      factor = 1 / ((1 - blend) / s.factor + blend);
    }
    scaling.factors.push_back(static_cast<float>(factor));
  }
  scaling.words = dump({{"rope_type", "llama3"},
                        {"factor", s.factor},
                        {"low_freq_factor", s.low},
                        {"high_freq_factor", s.high},
                        {"original_max_position_embeddings", tokens(s.original_context)}});
  return scaling;
}

RopeScaling yarn_scaling(const Rotation& rotation, const YarnScaling& s) {
  const auto R = static_cast<double>(rotation.rotated);
  // The pair that makes this many turns over the original context.
  const auto pair_of = [&](double turns) {
    return R * std::log(s.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rotation.theta));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, R - 1);
  if (low == high) high += 0.001;
  RopeScaling scaling;
  for (int64_t pair = 0; pair < rotation.rotated / 2; ++pair) {
    const double stretched = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    scaling.factors.push_back(static_cast<float>(1 / (stretched / s.factor + (1 - stretched))));
  }
  constexpr double kMostTokens = 1 << 30;
  scaling.context = static_cast<int64_t>(std::min(s.factor * s.original_context, kMostTokens));
  const auto magnitude = [&](double scale) {
    return s.factor <= 1 ? 1 : 0.1 * scale * std::log(s.factor) + 1;
  };
  const bool both = s.mscale != 0 && s.mscale_all_dim != 0;
  scaling.magnitude = s.attention_factor ? *s.attention_factor
                      : both             ? magnitude(s.mscale) / magnitude(s.mscale_all_dim)
                                         : magnitude(1);
  Json words = {{"rope_type", "yarn"},
                {"factor", s.factor},
                {"original_max_position_embeddings", tokens(s.original_context)},
                {"beta_fast", s.beta_fast},
                {"beta_slow", s.beta_slow}};
  if (s.attention_factor) words["attention_factor"] = *s.attention_factor;
  if (both) words.update({{"mscale", s.mscale}, {"mscale_all_dim", s.mscale_all_dim}});
  if (!s.truncates) words["truncate"] = false;
  scaling.words = dump(words);
  return scaling;
}

RopeScaling proportional_scaling(const Rotation& rotation, double part, double factor) {
  const auto rotated = static_cast<int64_t>(std::floor(part * static_cast<double>(rotation.rotated) / 2));
  RopeScaling scaling;
  for (int64_t pair = 0; pair < rotation.rotated / 2; ++pair)
    scaling.factors.push_back(pair < rotated ? static_cast<float>(factor) : kUnrotated);
  Json words = {{"rope_type", "proportional"}, {"partial_rotary_factor", part}};
  if (factor != 1) words["factor"] = factor;
  scaling.words = dump(words);
  return scaling;
}

RopeScaling longrope_scaling(std::vector<float> shorter, std::vector<float> longer, int64_t original_context,
                             double ratio, std::optional<double> attention_factor) {
  RopeScaling scaling;
  scaling.factors = std::move(shorter);
  scaling.longer = std::move(longer);
  scaling.switch_at = original_context;
  if (attention_factor)
    scaling.magnitude = *attention_factor;
  else if (ratio > 1)
    scaling.magnitude = std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original_context)));
  return scaling;
}

}  // namespace tessera
