// run_graph: the values of a concrete graph by reference kernels, node by node on one thread. The oracle for
// gradients, for sharded programs and for whole models; slow, and without any of the runtime's machinery.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera::test {

// `values` gives every input, parameter, constant and state by name. The result has one entry a tensor, by
// TensorId.
Result<std::vector<HostTensor>> run_graph(const Graph& graph,
                                          const std::map<std::string, HostTensor>& values);

}  // namespace tessera::test
