// GlobalIndex: maps an element's index in a shard to its row-major index in the whole tensor, or in a row of it.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/factor_index.h"

namespace tessera::cpu {

// For output 0 of an element-wise op. Dim i has factor 'a' + i alone, or that factor times an unsharded minor factor (the
// elements of a block). `first`: the first dim of a row; the dims before it do not count.
struct GlobalIndex {
  int rank = 0;
  int64_t row = 1;                         // elements of the whole row
  int64_t dims[TSR_ABI_MAX_RANK] = {};     // local
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // global
  FactorIndex factors[TSR_ABI_MAX_RANK];
  int64_t widths[TSR_ABI_MAX_RANK] = {};  // by dim: elements per index of its factor (block size; else 1)

  explicit GlobalIndex(const KernelSpec& spec, int first = 0) {
    int64_t stride = 1;
    rank = static_cast<int>(spec.output_dims(0).size());
    for (int dim = rank - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      dims[dim] = spec.output(0).dims[dim];
      const int64_t steps =
          factor.end[0] - factor.begin[0] + (factor.range_count > 1 ? factor.end[1] - factor.begin[1] : 0);
      widths[dim] = steps > 0 ? dims[dim] / steps : 1;
      factors[dim] = FactorIndex(factor);
      strides[dim] = dim < first ? 0 : stride;
      stride *= factor.global_extent * widths[dim];
      if (dim == first) row = stride;
    }
  }

  uint64_t to_global(int64_t local) const {
    int64_t global = 0;
    for (int dim = rank - 1; dim >= 0; --dim) {
      const int64_t at = local % dims[dim], width = widths[dim];
      global += (width == 1 ? factors[dim].to_global(at)
                            : factors[dim].to_global(at / width) * width + at % width) *
                strides[dim];
      local /= dims[dim];
    }
    return static_cast<uint64_t>(global);
  }
};

}  // namespace tessera::cpu
