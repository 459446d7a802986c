// TokenBatch: a caller's batch for a partial training step, and the inputs of its loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "graph/base/result.h"
#include "graph/transform/token_loss.h"

namespace tessera {

// Arrays [rows, seq] that must outlive the call; null: absent.
struct TokenBatch {
  int64_t rows = 0, seq = 0;
  const int32_t* tokens = nullptr;
  const int32_t* labels = nullptr;     // negative: ignored
  const int32_t* positions = nullptr;  // null: 0, 1, ... in each row
  const int32_t* segments = nullptr;   // null: a row is one document
  const float* weights = nullptr;
  const float* sampler_logprobs = nullptr;
  const float* advantages = nullptr;
  // [rows], for trainers with slots for adapters: slot of the row, factor of its adapter, factor on its loss; of dropout the
  // seed, the row's number in its adapter's batch, and the adapter's rate.
  const int32_t* slots = nullptr;
  const float* factors = nullptr;
  const float* row_scales = nullptr;
  const int64_t* dropout_seeds = nullptr;
  const int64_t* row_numbers = nullptr;
  const double* dropout_rates = nullptr;
};

// Number of elements of each array.
inline size_t elements(const TokenBatch& batch) { return static_cast<size_t>(batch.rows * batch.seq); }

struct LossOptions {
  double scale = 1, aux_scale = 1;
  double clip_low = 0.8, clip_high = 1.2;  // bounds of the probability ratio
  double beta = 0;                         // of dro
};
Result<LossOptions> read_loss_options(TokenLoss loss, const Options& options);

// kInvalidArgument if the loss needs a missing array or ignores a given one.
Status check_arrays(const TokenBatch& batch, TokenLoss loss);

// The weights of labels in the mean of their document, [rows, seq]: the batch's weights (absent: 1) divided by the
// document's sum of them; 0 for negative labels. kInvalidArgument for negative weights, and for documents in which all are 0.
Result<std::vector<float>> mean_weights(const TokenBatch& batch);

struct LossValue {
  double loss = 0;
  std::vector<float> logprobs;    // of labels [rows, seq]
  std::vector<float> row_losses;  // with slots for adapters [rows]
};

// Counts labels with a weight.
int64_t count_weighted_labels(const TokenBatch& batch);

}  // namespace tessera
