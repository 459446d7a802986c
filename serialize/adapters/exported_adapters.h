// ExportedAdapter: the adapter of a module of another project, of the adapters of the parameters that the module is.
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
  HostTensor a, b;  // f32: a [rank, K], b [N, rank]; of a table a [V, rank], b [C, rank]
  HostTensor bias;  // f32 [N], counts `factor` times; without data where there is none
  HostTensor magnitude;  // f32 [N]; without data where there is none
};

// `values`: f32, of all parameters of `adapters`. `order`: of the module's rows within a head (row_order); empty: ours.
// Parts of a module that do not share their first matrix become one adapter whose rank is the sum of theirs. kUnsupported
// where some parts have magnitudes and others have not.
Result<std::vector<ExportedAdapter>> exported_adapters(const std::vector<ForeignModule>& modules,
                                                       const std::vector<Adapter>& adapters,
                                                       const std::map<std::string, HostTensor>& values,
                                                       const std::vector<int64_t>& order);

}  // namespace tessera
