// Pooling: how the vectors of a text's tokens become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model/shared_model.h"
#include "graph/base/status.h"

namespace tessera {

// kAuto: what the model's file says, else mean in both directions and last of causal models. kNone and kRank: a file
// says that its vectors are those of tokens, or that its model is a reranker; neither makes a vector of a text.
enum class Pooling : uint8_t { kAuto, kMean, kCls, kLast, kNone, kRank };

// "mean", "cls", "last", "none", "rank" or "auto".
std::string_view name_of(Pooling pooling);

struct EmbeddingForm {
  Pooling pooling = Pooling::kLast;
  bool normalize = false;
};
// What the model's file says; else the mean in both directions, and the last token of causal models.
EmbeddingForm embedding_form(const SharedModel& model, bool is_bidirectional);
// kFailedPrecondition where the model's file says a pooling that makes no vector of a text.
Status check_pools(Pooling pooling);

void scale_to_length_1(std::span<float> row);

// PooledVector: sums are of f64, in the order of tokens, so that they do not depend on how many come at once.
class PooledVector {
 public:
  PooledVector(Pooling pooling, size_t width);
  // Vectors of the next tokens: rows [n, width].
  void add(std::span<const float> rows);
  // row [width], when at least one token was added. False where a number is not finite.
  bool write(std::span<float> row) const;

 private:
  const Pooling pooling_;
  size_t tokens_ = 0;
  std::vector<double> values_;  // the sum, or the vector of one token
};

}  // namespace tessera
