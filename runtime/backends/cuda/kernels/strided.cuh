// StridedBox: row-major operands whose dims are permuted, dropped or repeated.
#pragma once

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

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
  __device__ int64_t offset_of(int64_t element) const {
    int64_t offset = 0;
    if (element >> 31 == 0) {  // 32-bit division is several times cheaper
      auto rest = static_cast<uint32_t>(element);
      for (int i = rank - 1; i >= 0; --i) {
        // An extent beyond 2^31 is as good as 2^31 here.
        const auto extent = static_cast<uint32_t>(dims[i] >> 31 == 0 ? dims[i] : int64_t{1} << 31);
        offset += static_cast<int64_t>(rest % extent) * strides[i];
        rest /= extent;
      }
      return offset;
    }
    for (int i = rank - 1; i >= 0; --i) {
      offset += element % dims[i] * strides[i];
      element /= dims[i];
    }
    return offset;
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

inline bool contains(std::span<const int64_t> axes, int64_t dim) {
  for (const int64_t axis : axes)
    if (axis == dim) return true;
  return false;
}

// The product of the global extents of `axes`, whose factors are 'a' + axis.
inline double global_count(const KernelSpec& spec, std::span<const int64_t> axes) {
  double count = 1;
  for (const int64_t axis : axes)
    count *= static_cast<double>(spec.factor(static_cast<char>('a' + axis)).global_extent);
  return count;
}

}  // namespace tessera::cuda
