// Interpreter: runs a concrete graph on one device with the reference kernels, in the order of its nodes.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.h"
#include "tests/ops/kernel_run.h"

namespace tessera::conformance {

class Interpreter {
 public:
  // Prepares every node; the graph must outlive the interpreter.
  static Result<Interpreter> make(const Graph& graph);

  // Every tensor of the graph, by id. `feeds` holds all inputs, parameters, constants and states.
  Result<std::vector<Array>> run(const std::map<TensorId, Array>& feeds) const;

 private:
  const Graph* graph_ = nullptr;
  std::vector<PreparedKernel> kernels_;  // one a node
};

}  // namespace tessera::conformance
