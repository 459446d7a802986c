// Pooling: reduction of a text's token vectors to one vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model/shared_model.h"
#include "graph/base/status.h"

namespace tessera {

// kAuto: the model file's, else mean for bidirectional and last for causal models. kNone, kRank:
// stated by files whose model gives token vectors, or is a reranker; neither makes a text vector.
enum class Pooling : uint8_t { kAuto, kMean, kCls, kLast, kNone, kRank };

// "mean", "cls", "last", "none", "rank" or "auto".
std::string_view name_of(Pooling pooling);

struct EmbeddingForm {
  Pooling pooling = Pooling::kLast;
  bool normalize = false;
};
// The model file's form; else the mean for bidirectional and the last token for causal models.
EmbeddingForm embedding_form(const SharedModel& model, bool is_bidirectional);
// kFailedPrecondition if the model's file states a pooling without text vectors.
Status check_pools(Pooling pooling);

void scale_to_length_1(std::span<float> row);

// PooledVector: sums in f64 in the order of tokens, so that results do not depend on chunks.
class PooledVector {
 public:
  PooledVector(Pooling pooling, size_t width);
  // Adds the next tokens' vectors: rows [n, width].
  void add(std::span<const float> rows);
  // row [width], after at least one token. False if a number is not finite.
  bool write(std::span<float> row) const;

 private:
  const Pooling pooling_;
  size_t tokens_ = 0;
  std::vector<double> values_;  // the sum, or the vector of one token
};

}  // namespace tessera
