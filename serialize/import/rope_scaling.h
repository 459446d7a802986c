// RopeScaling: how files scale rotary positions, as what the graph takes: numbers that frequencies are divided by, and
// one that cosines and sines are multiplied by.
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
  std::vector<float> factors;  // of each pair, in sequences of up to switch_at tokens
  std::vector<float> longer;   // and in longer ones; empty: the same
  int64_t switch_at = 0;
  double magnitude = 1;
  int64_t context = 0;  // tokens that the scaling makes room for, where it says so; 0: as the file's context
  // The object "rope_scaling" of a config.json that gives these numbers; empty where the numbers are all that a file
  // says. Metadata "rope_scaling" of the model.
  std::string words;

  bool is_neutral() const;
  // Sizes and reals of the shorthand.
  void describe(ModelConfig& config) const;
  // The parameter rope_factors, f32 [1 or 2, pairs].
  HostTensor values() const;
};

// Numbers of a head that a file may rotate: there is a factor for each pair, whatever the file's size.
inline constexpr int64_t kMostRotated = 65536;

// Frequency i of `rotated` / 2 is theta^(-2 i / rotated).
struct Rotation {
  double theta = 10000;
  int64_t rotated = 0;
};

RopeScaling linear_scaling(const Rotation& rotation, double factor);

// Grattafiori et al., 2024: long waves are stretched by `factor`, short ones stay, between them it blends.
struct Llama3Scaling {
  double factor = 0, low = 1, high = 4, original_context = 8192;
};
RopeScaling llama3_scaling(const Rotation& rotation, const Llama3Scaling& settings);

// Peng et al., 2023 (YaRN).
struct YarnScaling {
  double factor = 0, original_context = 0, beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor;  // none: 1 + 0.1 ln(factor)
  double mscale = 0, mscale_all_dim = 0;   // both given: their quotient instead
  bool truncates = true;                   // bounds of the ramp are whole numbers
};
RopeScaling yarn_scaling(const Rotation& rotation, const YarnScaling& settings);

// Ding et al., 2024 (LongRoPE). attention_factor: none: sqrt(1 + ln(ratio) / ln(original)), 1 where ratio <= 1.
RopeScaling longrope_scaling(std::vector<float> shorter, std::vector<float> longer, int64_t original_context,
                             double ratio, std::optional<double> attention_factor);

}  // namespace tessera
