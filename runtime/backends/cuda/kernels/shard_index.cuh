// ShardIndex: the place of a shard's elements in the whole tensor, for random numbers that do not depend on
// the sharding.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

// The row-major index in the whole tensor of an element of a shard that is one range of every dim. Dims
// contiguous in the shard as in the whole count as one; that leaves rows, matrices of rows, and tensors of
// those.
struct ShardIndex {
  int64_t begin = 0;                          // of the shard's first element
  int64_t row = 1, rows = 1;                  // elements of a row, rows of a matrix, in the shard
  int64_t row_stride = 0, matrix_stride = 0;  // from one to the next in the whole; 0: there is one

  // kUnsupported for shards of several ranges of a dim, or with more dims.
  static Result<ShardIndex> create(const KernelSpec& spec) {
    struct Level {
      int64_t extent, stride;
    };
    constexpr int kMost = 3;
    Level levels[kMost];  // from the last dim on
    int count = 0;
    ShardIndex made;
    int64_t stride = 1;
    const auto dims = spec.output_dims(0);
    for (int dim = static_cast<int>(dims.size()) - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      const int64_t extent = dims[static_cast<size_t>(dim)];
      if (factor.range_count > 1)
        return Status(StatusCode::kUnsupported, format("two ranges of dim {}: wanted one", dim));
      // A dim may be a product of its factor and one that is whole, as blocks are.
      const int64_t steps = factor.end[0] - factor.begin[0], width = steps > 0 ? extent / steps : 1;
      made.begin += factor.begin[0] * width * stride;
      if (count == 0) levels[count++] = {1, 1};
      Level& last = levels[count - 1];
      if (last.extent * last.stride == stride) {
        last.extent *= extent;
      } else if (extent != 1) {
        if (count == kMost)
          return Status(StatusCode::kUnsupported, format("a shard cut along more than {} dims", kMost));
        levels[count++] = {extent, stride};
      }
      stride *= factor.global_extent * width;
    }
    if (count > 0) made.row = levels[0].extent;
    if (count > 1) {
      made.rows = levels[1].extent;
      made.row_stride = levels[1].stride;
    }
    if (count > 2) made.matrix_stride = levels[2].stride;
    return made;
  }

  __device__ uint64_t to_global(int64_t local) const {
    int64_t index = begin;
    if (row_stride == 0) {
      index += local;
    } else {
      const int64_t in_row = local % row, r = local / row;
      index +=
          in_row + (matrix_stride == 0 ? r * row_stride : r % rows * row_stride + r / rows * matrix_stride);
    }
    return static_cast<uint64_t>(index);
  }
};

}  // namespace tessera::cuda
