// Graph -> graph: a forward model becomes one that computes the squares of its
// matrices' inputs, the weights of the errors of their columns in quantisation.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct InputSquares {
  // One matmul input, which several matmuls may share.
  struct Output {
    std::string name;                  // f32 [B, K]: the sum over the positions of a row of its squares
    std::vector<std::string> weights;  // parameters [N, K]
  };
  Graph graph;  // inputs are those of the model; no other outputs
  std::vector<Output> outputs;
};

// For f32 weights [N, K] (with_logical_weights) that multiply activations [B, T, K]. Without dropout,
// and experts drop no token. kFailedPrecondition: no input "tokens" [B, T], or no such weight.
Result<InputSquares> make_input_squares(const Graph& forward);

}  // namespace tessera
