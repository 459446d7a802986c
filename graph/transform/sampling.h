// Graph -> graph: sampling of a token from each row of logits.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Appends the op `sample` to a graph with output "logits" [W, V]: inputs "temperature" f32[], "top_k"
// i32[], "top_p" f32[], "seed" i64[], and "start" and "length" i32[W], whose sum is the number of
// tokens before the drawn one; output "token" i32[W]. kInvalidArgument without such an output.
Result<Graph> with_sampling(const Graph& serving);

}  // namespace tessera
