// BatchRows: the arrays of one batch of dataset rows, ready to be fed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/program/program_runner.h"

namespace tessera {

struct BatchRows {
  // [batch, row_tokens] each; empty: not fed, since every row is equal.
  std::vector<int32_t> tokens, labels, positions, segments;
  std::vector<float> weights;
  int64_t batch = 0, width = 0;

  static BatchRows of(const Dataset& dataset, int64_t batch);
  DatasetRow row(int64_t row);
  // Sum of the labels' weights, or their number if unweighted.
  double weight() const;
  // Feeds those inputs that the entry has.
  Status feed(ProgramRunner& runner, std::string_view entry) const;
};

}  // namespace tessera
