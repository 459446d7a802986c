// ArrayDataset: rows given by the caller: tokens, labels, documents and positions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/data/dataset.h"

namespace tessera {

// Arrays [rows, seq]; all but ids may be null.
struct RowArrays {
  int64_t rows = 0, seq = 0;
  const int32_t *ids = nullptr, *labels = nullptr, *segments = nullptr, *positions = nullptr;
  const float* weights = nullptr;  // of the labels' losses; 0: the label is ignored
};

class ArrayDataset final : public Dataset {
 public:
  // Copies the arrays. Options: eval_fraction, shuffle, seed. kInvalidArgument, with the place, for numbers out of range.
  static Result<std::shared_ptr<const Dataset>> create(const RowArrays& arrays, const Options& options);

  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int64_t> count_eval_labels(int64_t rows) const override;
  bool has_weights() const override { return !weights_.empty(); }
  Result<std::string> info_json() const override;

 private:
  ArrayDataset() = default;
  Status check(const RowArrays& arrays) const;
  void find_positions();
  Status fill(int64_t number, const DatasetRow& row) const override;

  std::vector<int32_t> ids_, labels_, segments_, positions_;
  std::vector<float> weights_;  // empty: all are 1, and ignored tokens have no label
  int64_t trained_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace tessera
