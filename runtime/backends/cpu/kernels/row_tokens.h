// RowTokens: the tokens of a step by the row of state that they continue, in their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/table_rows.h"

namespace tessera::cpu {

class RowTokens {
 public:
  static int64_t bytes(int64_t rows, int64_t tokens) {
    return TableRows::bytes(rows, tokens) + rows * static_cast<int64_t>(sizeof(int64_t));
  }

  // row [tokens], of which those outside [0, rows) belong to no sequence; `workspace` has `bytes`.
  RowTokens(int64_t rows, const int32_t* row, int64_t tokens, void* workspace)
      : rows_(rows),
        row_(row),
        tokens_(tokens),
        active_(static_cast<int64_t*>(workspace)),
        by_row_(FactorIndex(), rows, row, tokens, active_ + rows) {
    for (int64_t at = 0; at < rows; ++at)
      if (!of(at).empty()) active_[active_count_++] = at;
    std::fill(active_ + active_count_, active_ + rows, int64_t{-1});
  }

  bool is_padding(int64_t token) const { return row_[token] < 0 || row_[token] >= rows_; }
  int64_t count() const { return tokens_; }
  // In the order of their positions.
  std::span<const int64_t> of(int64_t row) const { return {by_row_.begin(row), by_row_.end(row)}; }
  // The rows that have tokens.
  int64_t active_count() const { return active_count_; }
  int64_t active(int64_t i) const { return active_[i]; }

 private:
  const int64_t rows_;
  const int32_t* const row_;
  const int64_t tokens_;
  int64_t* const active_;
  int64_t active_count_ = 0;
  const TableRows by_row_;
};

// Before the step of an op with results y [tokens, width] and states: the states as they were, and zeros for tokens of no row.
template <class F>
void begin_rows(const LaunchArgs& args, const RowTokens& by_row, int64_t width, int64_t state_count) {
  F *const y = args.out<F>(0), *const state = args.out<F>(1);
  if (args.inputs[0] != args.outputs[1]) std::copy_n(args.in<F>(0), state_count, state);
  for (int64_t token = 0; token < by_row.count(); ++token)
    if (by_row.is_padding(token)) std::fill_n(y + token * width, width, F(0));
}

}  // namespace tessera::cpu
