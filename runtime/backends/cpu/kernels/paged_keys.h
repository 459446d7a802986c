// The operands of paged attention: the places of values, and the keys visible to tokens of many sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/attention_mask.h"

namespace tessera::cpu {

// PagedValues: the place of attention_paged's values. The operands of tokens follow theirs.
struct PagedValues {
  int operand;         // 2, or that of the keys
  int64_t width, row;  // numbers of a value; distance between values of a head
  explicit PagedValues(const KernelSpec& spec)
      : operand(spec.i64("value_width") > 0 ? 1 : 2),
        width(operand == 1 ? spec.i64("value_width") : spec.input_dims(2)[3]),
        row(spec.input_dims(operand)[3]) {}
};

// PagedTokens: tokens of many sequences, and the places in pages of their visible
// keys. Rows, positions and the table are untrusted: entries out of range are ignored.
struct PagedTokens {
  int64_t pages = 0, page = 0;                                          // P, and slots of a page S
  int64_t rows = 0, columns = 0;                                        // of the table
  int64_t window = 0;                                                   // 0: none
  const int32_t *table = nullptr, *row = nullptr, *position = nullptr;  // [rows, columns]; of each token

  // Operands number `first` to `first + 2`: table, row and position; `k`: pages of keys.
  static PagedTokens from_spec(const KernelSpec& spec, int k, int first) {
    const auto key = spec.input_dims(k), table = spec.input_dims(first);
    return {key[0], key[1], table[0], table[1], spec.i64("window"), nullptr, nullptr, nullptr};
  }
  PagedTokens with(const LaunchArgs& args, int first) const {
    PagedTokens given = *this;
    given.table = args.in<int32_t>(first);
    given.row = args.in<int32_t>(first + 1);
    given.position = args.in<int32_t>(first + 2);
    return given;
  }

  int64_t most_keys() const { return columns * page; }
  bool has_row(int64_t token) const { return row[token] >= 0 && row[token] < rows; }
  // Positions that a token sees, as far as the table goes; where there are none both are 0.
  AttentionMask::Keys keys(int64_t token) const {
    const int64_t at = position[token];
    if (!has_row(token) || at < 0) return {};
    AttentionMask::Keys seen{window > 0 ? std::max<int64_t>(at - window + 1, 0) : 0,
                             std::min(at + 1, most_keys())};
    return seen.begin < seen.end ? seen : AttentionMask::Keys{};
  }
  // The slot of position `s` of a sequence, counted over all pages; -1 where it has no page.
  int64_t slot(int64_t of_row, int64_t s) const {
    const int64_t at = table[of_row * columns + s / page];
    return at < 0 || at >= pages ? -1 : at * page + s % page;
  }
};

}  // namespace tessera::cpu
