// Texts of token ids, and what a model says of each of their tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "command.h"

namespace cli {

// Byte `begins[i]` of the input is the first of text i.
struct TokenTexts {
  std::vector<int32_t> ids;
  std::vector<size_t> lengths, begins;
};

// For each token.
struct TokenScores {
  std::vector<float> logprobs;  // NaN: not scored
  std::vector<uint8_t> greedy;
  Json report;
};

}  // namespace cli
