// TableRows: the positions that look up each row of a table's shard, by a stable counting sort. Rows are
// independent, and the positions of one stay in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backends/cpu/factor_index.h"

namespace tessera::cpu {

class TableRows {
 public:
  // Size in `workspace`, all of which is written whatever the ids are, so that the bytes a run touches do not
  // depend on its data.
  static int64_t bytes(int64_t rows, int64_t count) {
    return (rows + 1 + count) * static_cast<int64_t>(sizeof(int64_t));
  }

  // ids [count]; ids of other shards, or of no row, are in no list.
  TableRows(const FactorIndex& rows_here, int64_t rows, const int32_t* ids, int64_t count, void* workspace)
      : first_(static_cast<int64_t*>(workspace)), positions_(first_ + rows + 1) {
    const auto row_of = [&](int32_t id) {
      const int64_t row = rows_here.to_local(id);
      return row < rows ? row : -1;
    };
    std::fill_n(first_, rows + 1, int64_t{0});
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t row = row_of(ids[i]); row >= 0) ++first_[row + 1];
    for (int64_t row = 0; row < rows; ++row) first_[row + 1] += first_[row];
    std::fill(positions_ + first_[rows], positions_ + count, int64_t{-1});
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t row = row_of(ids[i]); row >= 0) positions_[first_[row]++] = i;
    // first_[row] is now the end of the row, which is the start of the next one.
  }

  const int64_t* begin(int64_t row) const { return positions_ + (row == 0 ? 0 : first_[row - 1]); }
  const int64_t* end(int64_t row) const { return positions_ + first_[row]; }

 private:
  int64_t* first_;      // [rows + 1]
  int64_t* positions_;  // [count], by row
};

}  // namespace tessera::cpu
