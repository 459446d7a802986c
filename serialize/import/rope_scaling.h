// RopeScaling: a file's scaling of rotary positions as the graph takes
// it: divisors of frequencies, and a factor of cosines and sines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/models/model_family.h"

namespace tessera {

struct RopeScaling {
  std::vector<float> factors;  // per pair, for sequences of up to switch_at tokens
  std::vector<float> longer;   // for longer ones; empty: the same
  int64_t switch_at = 0;
  double magnitude = 1;
  int64_t context = 0;  // context after scaling, if stated; 0: the file's
  // The "rope_scaling" object of a config.json with these numbers,
  // stored as metadata; empty if the file states only numbers.
  std::string words;

  bool is_neutral() const;
  // Sets sizes and reals of the shorthand.
  void describe(ModelConfig& config) const;
  // The parameter rope_factors, f32 [1 or 2, pairs].
  HostTensor values() const;
};

// Bound of rotated numbers per head, since each pair has a factor, whatever the file's size.
inline constexpr int64_t kMostRotated = 65536;

// Frequency i of `rotated` / 2 is theta^(-2 i / rotated).
struct Rotation {
  double theta = 10000;
  int64_t rotated = 0;
};

RopeScaling linear_scaling(const Rotation& rotation, double factor);

// Grattafiori et al., 2024: long wavelengths are stretched by `factor`, short ones kept, those between blended.
struct Llama3Scaling {
  double factor = 0, low = 1, high = 4, original_context = 8192;
};
RopeScaling llama3_scaling(const Rotation& rotation, const Llama3Scaling& settings);

// Peng et al., 2023 (YaRN).
struct YarnScaling {
  double factor = 0, original_context = 0, beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor;  // nullopt: 1 + 0.1 ln(factor)
  double mscale = 0, mscale_all_dim = 0;   // if both are given, their quotient replaces the factor
  bool truncates = true;                   // the ramp has integer bounds
};
RopeScaling yarn_scaling(const Rotation& rotation, const YarnScaling& settings);

// The first `part` of the pairs have their frequencies over `factor`, the others 0, as far as f32 sees (Gemma 4).
inline constexpr float kUnrotated = 1e30F;  // the factor of the others, as in GGUF files
RopeScaling proportional_scaling(const Rotation& rotation, double part, double factor);

// Ding et al., 2024 (LongRoPE). attention_factor nullopt: sqrt(1 + ln(ratio) / ln(original)), 1 if ratio <= 1.
RopeScaling longrope_scaling(std::vector<float> shorter, std::vector<float> longer, int64_t original_context,
                             double ratio, std::optional<double> attention_factor);

}  // namespace tessera
