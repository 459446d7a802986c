// StridedBox: loops over row-major operands whose dims are permuted, dropped or repeated.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// The offset into another tensor that goes with each element of a row-major box.
struct StridedBox {
  int rank = 0;
  int64_t dims[TSR_ABI_MAX_RANK] = {};
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // of the other tensor, 0 where it is repeated

  void add(int64_t extent, int64_t stride) {
    dims[rank] = extent;
    strides[rank++] = stride;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  // visit(offset) for the elements [begin, end) in row-major order.
  template <class Visit>
  void for_each_offset(int64_t begin, int64_t end, Visit&& visit) const {
    if (begin >= end) return;
    int64_t at[TSR_ABI_MAX_RANK] = {};
    int64_t offset = 0;
    for (int64_t i = rank - 1, rest = begin; i >= 0; --i) {
      at[i] = rest % dims[i];
      rest /= dims[i];
      offset += at[i] * strides[i];
    }
    for (int64_t left = end - begin;;) {
      visit(offset);
      if (--left == 0) return;
      for (int i = rank - 1; i >= 0; --i) {
        offset += strides[i];
        if (++at[i] < dims[i]) break;
        offset -= strides[i] * dims[i];
        at[i] = 0;
      }
    }
  }
};

// Row-major strides, in elements.
inline void row_major_strides(std::span<const int64_t> dims, int64_t* strides) {
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
}

// For kernels that only move elements: f(an unsigned integer of the element's size).
template <class F>
Result<PreparedKernel> dispatch_element_size(DType dtype, F&& f) {
  const DTypeInfo& element = info(dtype);
  if (element.block_elements == 1) switch (element.block_bytes) {
      case 1: return f(uint8_t{});
      case 2: return f(uint16_t{});
      case 4: return f(uint32_t{});
      case 8: return f(uint64_t{});
      default: break;
    }
  return Status(StatusCode::kUnsupported,
                format("dtype {}: this kernel moves plain elements", to_text(dtype)));
}

}  // namespace tessera::cpu
