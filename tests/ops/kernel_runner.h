// run_kernel: one launch of one CPU kernel on host tensors, through the same description that crosses the
// plugin ABI; no device, graph or program. What the tests of kernels and ops stand on.
#pragma once

#include <string_view>
#include <vector>

#include "graph/host_tensor.h"
#include "graph/op_def.h"

namespace tessera::test {

struct KernelCall {
  std::string_view op;
  std::vector<HostTensor> inputs;  // local; the data of shape-only inputs is not looked at
  std::vector<Attr> attrs = {};    // defaults are filled in
  // Where the operands lie in the op's factors, in any order; a factor that is not named is whole.
  std::vector<FactorView> factors = {};
  std::string_view variant = "reference";
  int reuse_input = -1;        // this input's copy is output 0's buffer: the op in place
  bool reverse_tasks = false;  // run the tasks of the pool in descending order: no result may depend on it
};

// Types of the results by `infer`, then the kernel's bytes. Outputs and workspace start out as 0xA5 bytes.
Result<std::vector<HostTensor>> run_kernel(const KernelCall& call);

// `attrs` with the op's defaults for what is missing, in the order of the op.
std::vector<Attr> complete_attrs(const OpDef& op, const std::vector<Attr>& attrs);

}  // namespace tessera::test
