// Graph -> graph: a forward language model becomes one that computes log probabilities of given tokens.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Inputs: those of the model, and "labels" i32[B, T], the token after each position (-1: none).
// Outputs, both f32[B, T]: "nll" = -log softmax(logits)[label], 0 without a label; "margin" = the
// label's logit less the largest: 0 where the label is a likeliest token, else below 0. The logits
// are no output. Vocabulary-parallel by construction, as add_token_loss. Dropout is removed and experts
// get unlimited capacity (with_unbounded_routing), so that a position depends only on earlier ones, as in
// decoding. kFailedPrecondition: no output "logits" [B, T, V] or input "tokens" [B, T], or attention that is not causal.
Result<Graph> make_scoring(const Graph& forward);

// The graph in which experts drop no token.
Result<Graph> with_unbounded_routing(const Graph& graph);

}  // namespace tessera
