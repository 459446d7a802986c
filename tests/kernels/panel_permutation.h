// The permutation of interleaved panels (quantized_rows.h) and its inverse, in plain loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "graph/base/dtype.h"
#include "graph/base/status.h"
#include "runtime/backends/cpu/kernels/quantized_layout.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"

namespace tessera::cpu {

// copy(bytes, offset in rows, offset in the panel) for every unit of the panel.
template <class Copy>
inline void for_each_unit(const QuantizedLayout& layout, int64_t lanes, int64_t block_count, const Copy& copy) {
  const int64_t block_bytes = info(layout.type).block_bytes, row_bytes = block_count * block_bytes;
  int64_t to = 0;
  for (int64_t block = 0; block < block_count; ++block) {
    int64_t from = block * block_bytes;
    for (const BlockField& field : layout.fields)
      for (int unit = 0; unit < field.units; ++unit, from += field.bytes)
        for (int64_t lane = 0; lane < lanes; ++lane, to += field.bytes)
          copy(field.bytes, lane * row_bytes + from, to);
  }
}

// One panel of `lanes` rows of `block_count` blocks.
inline void interleave_panel(const QuantizedLayout& layout, int64_t lanes, int64_t block_count,
                      const std::byte* rows, std::byte* panel) {
  for_each_unit(layout, lanes, block_count, [&](size_t bytes, int64_t in_rows, int64_t in_panel) {
    std::memcpy(panel + in_panel, rows + in_rows, bytes);
  });
}

inline void deinterleave_panel(const QuantizedLayout& layout, int64_t lanes, int64_t block_count,
                        const std::byte* panel, std::byte* rows) {
  for_each_unit(layout, lanes, block_count, [&](size_t bytes, int64_t in_rows, int64_t in_panel) {
    std::memcpy(rows + in_rows, panel + in_panel, bytes);
  });
}

// The inverse of interleave_rows.
inline void deinterleave_rows(DType type, int64_t N, int64_t K, const std::byte* from, std::byte* to,
                       int64_t panel_begin, int64_t panel_end) {
  const int64_t lanes = interleaved_rows(), row_bytes = dtype_bytes(type, K);
  const QuantizedLayout* layout = find_quantized_layout(type);
  TSR_CHECK(layout != nullptr && layout->can_interleave(),
            "deinterleave_rows: the type has only the file's layout");
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t row = panel * lanes, offset = row * row_bytes;
    if (row + lanes <= N) {
      deinterleave_panel(*layout, lanes, K / info(type).block_elements, from + offset, to + offset);
    } else if (row < N) {
      std::memcpy(to + offset, from + offset, static_cast<size_t>((N - row) * row_bytes));
    }
  }
}

}  // namespace tessera::cpu
