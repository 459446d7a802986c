// PagedTokens: tokens of many sequences, and the places in pages of their visible keys.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/backends/cuda/kernels/attention.cuh"

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
  // From the operands of a launch.
  __host__ PagedTokens of(const LaunchArgs& args) const {
    PagedTokens it = *this;
    it.table = args.in<int32_t>(3), it.row = args.in<int32_t>(4), it.position = args.in<int32_t>(5);
    return it;
  }
};

struct PagedShape {
  AttentionShape shape;  // B = 1, T: all tokens, S: keys of the longest sequence
  PagedTokens tokens;    // without operands
};

// PagedShape of q [B, T, H, D], k_pages, v_pages [P, S, KV, D], table [R, M],
// row, position [B, T], for kernels that read pages of q's type in tiles.
inline Result<PagedShape> paged_shape(const KernelSpec& spec) {
  if (spec.input_count() != 6 || spec.input_dtype(0) != spec.input_dtype(1))
    return Status(StatusCode::kUnsupported, "values within keys, or pages of another type: the plain kernel has them");
  AttentionShape shape = attention_shape(spec, 0, 1, 2);
  const int64_t window = std::exchange(shape.window, 0);
  TSR_RETURN_IF_ERROR(check_plain(spec, shape, 6));
  shape.window = window;
  shape.T *= shape.B;
  shape.B = 1;
  const auto pages = spec.input_dims(1), table = spec.input_dims(3);
  shape.S = table[1] * pages[1];
  return PagedShape{shape, {nullptr, nullptr, nullptr, table[0], table[1], pages[0], pages[1]}};
}

}  // namespace tessera::cuda
