// TokenBatch: a caller's batch for a part of a training step, and what a loss is computed with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "graph/base/result.h"
#include "graph/transform/token_loss.h"

namespace tessera {

// Arrays [rows, seq] of the caller, which outlive the call; null where there is none.
struct TokenBatch {
  int64_t rows = 0, seq = 0;
  const int32_t* tokens = nullptr;
  const int32_t* labels = nullptr;     // negative: without weight
  const int32_t* positions = nullptr;  // null: 0, 1, ... in each row
  const int32_t* segments = nullptr;   // null: each row is one document
  const float* weights = nullptr;
  const float* sampler_logprobs = nullptr;
  const float* advantages = nullptr;
};

// How many elements its arrays have.
inline size_t elements(const TokenBatch& batch) { return static_cast<size_t>(batch.rows * batch.seq); }

struct LossOptions {
  double scale = 1, aux_scale = 1;
  double clip_low = 0.8, clip_high = 1.2;  // bounds of the ratio of probabilities
};
Result<LossOptions> read_loss_options(TokenLoss loss, const Options& options);

// kInvalidArgument where the loss lacks an array or means nothing to one.
Status check_arrays(const TokenBatch& batch, TokenLoss loss);

struct LossValue {
  double loss = 0;
  std::vector<float> logprobs;  // of labels [rows, seq]
};

}  // namespace tessera
