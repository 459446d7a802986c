// PagedTokens: tokens of many sequences, and where in the pages the keys lie that they see.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Rows, positions and the table are untrusted: what is outside is not there.
struct PagedTokens {
  const int32_t *table, *row, *position;  // [rows, columns]; of each token
  int64_t rows, columns, pages, page;

  // The slot of position `s` of the token's sequence; -1 where it has no page.
  __device__ int64_t slot(int64_t token, int64_t s) const {
    const int64_t at = table[row[token] * columns + s / page];
    return at < 0 || at >= pages ? -1 : at * page + s % page;
  }
  // The keys that a token sees: those from `first` on, before the number returned.
  __device__ int64_t keys(int64_t token, int64_t window, int64_t& first) const {
    first = 0;
    if (row[token] < 0 || row[token] >= rows) return 0;
    const int64_t at = position[token], most = columns * page;
    if (window > 0 && at - window + 1 > 0) first = at - window + 1;
    return at < 0 ? 0 : at + 1 < most ? at + 1 : most;
  }
};

}  // namespace tessera::cuda
