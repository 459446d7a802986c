// ModuleAdapter: the adapter of another project's module,
// and its conversion to adapters of our parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/host_tensor.h"
#include "serialize/adapters/adapter_file.h"
#include "serialize/adapters/foreign_modules.h"

namespace tessera {

struct ModuleAdapter {
  int64_t rank = 0;
  double factor = 1;
  HostTensor a, b;       // f32: a [rank, K], b [N, rank]; for a table a [V, rank], b [C, rank]
  HostTensor bias;       // f32 [N], scaled by `factor`; without data: none
  HostTensor magnitude;  // f32 [N]; without data: none
  bool has_start = false;
  double dropout = 0;
};

// Parts of the module share a and split the rows of b, bias and magnitude. `order`:
// permutation of rows within a head, for parameters with rotated rows; empty: none.
void add_adapter(AdapterFile& file, const ForeignModule& module, const ModuleAdapter& adapter,
                 const std::vector<int64_t>& order);

}  // namespace tessera
