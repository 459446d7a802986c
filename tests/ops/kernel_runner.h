// Reference kernels on host tensors: one op, or a whole graph by name; what the hand-written tests of ops
// stand on.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera::test {

struct KernelCall {
  std::string_view op;
  std::vector<HostTensor> inputs;  // local; the data of shape-only inputs is not looked at
  std::vector<Attr> attrs = {};    // defaults are filled in
  // The operands' ranges of the op's factors, in any order; a factor that is not named is whole.
  std::vector<FactorView> factors = {};
};
Result<std::vector<HostTensor>> run_kernel(const KernelCall& call);

// `values` gives every input, parameter, constant and state of a concrete graph by name; others are ignored.
// The result has one entry a tensor, by TensorId.
Result<std::vector<HostTensor>> run_graph(const Graph& graph,
                                          const std::map<std::string, HostTensor>& values);

}  // namespace tessera::test
