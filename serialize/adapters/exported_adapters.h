// ExportedAdapter: the adapter of another project's module, combined from the adapters of its parameters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/transform/adapters.h"
#include "serialize/adapters/foreign_modules.h"

namespace tessera {

struct ExportedAdapter {
  std::string module;
  bool is_table = false;
  int64_t rank = 0;
  double factor = 1;
  HostTensor a, b;  // f32: a [rank, K], b [N, rank]; for a table a [V, rank], b [C, rank]
  HostTensor bias;  // f32 [N], scaled by `factor`; without data: none
  HostTensor magnitude;  // f32 [N]; without data: none
};

// `values`: f32 values of all parameters of `adapters`. `order`: permutation of the module's
// rows within a head (row_order); empty: ours. Parts with different first matrices become
// one adapter with the sum of their ranks. kUnsupported if only some parts have magnitudes.
Result<std::vector<ExportedAdapter>> exported_adapters(const std::vector<ForeignModule>& modules,
                                                       const std::vector<Adapter>& adapters,
                                                       const std::map<std::string, HostTensor>& values,
                                                       const std::vector<int64_t>& order);

}  // namespace tessera
