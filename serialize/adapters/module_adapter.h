// ModuleAdapter: the adapter of a module of another project, and how it becomes adapters of the parameters that the
// module is.
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
  HostTensor a, b;       // f32: a [rank, K], b [N, rank]; of a table a [V, rank], b [C, rank]
  HostTensor bias;       // f32 [N], counts `factor` times; without data where there is none
  HostTensor magnitude;  // f32 [N]; without data where there is none
  bool has_start = false;
  double dropout = 0;
};

// Parts of the module share a and have their rows of the others. `order`: of the rows within a head, for parameters that
// have such; empty: as they are.
void add_adapter(AdapterFile& file, const ForeignModule& module, const ModuleAdapter& adapter,
                 const std::vector<int64_t>& order);

}  // namespace tessera
