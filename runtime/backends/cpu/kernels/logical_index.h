// LogicalIndex: the row-major index in the whole tensor of an element of a shard.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/factor_index.h"

namespace tessera::cpu {

// Serves result 0 of an element-wise op, whose dims have factors a, b, ....
struct LogicalIndex {
  int rank = 0;
  int64_t dims[TSR_ABI_MAX_RANK] = {};     // local
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // global
  FactorIndex factors[TSR_ABI_MAX_RANK];

  explicit LogicalIndex(const KernelSpec& spec) {
    int64_t stride = 1;
    rank = static_cast<int>(spec.output_dims(0).size());
    for (int dim = rank - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      dims[dim] = spec.output(0).dims[dim];
      factors[dim] = FactorIndex(factor);
      strides[dim] = stride;
      stride *= factor.global_extent;
    }
  }

  uint64_t to_global(int64_t local) const {
    int64_t global = 0;
    for (int dim = rank - 1; dim >= 0; --dim) {
      global += factors[dim].to_global(local % dims[dim]) * strides[dim];
      local /= dims[dim];
    }
    return static_cast<uint64_t>(global);
  }
};

}  // namespace tessera::cpu
