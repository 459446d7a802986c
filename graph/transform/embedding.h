// Graph -> graph: a model of texts becomes one that computes their
// vectors, for several texts of unequal length in one batch.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Adds an input "segments" i32 [B, T]: attention sees tokens with the same number alone.
// kPadding: for attention that is not causal, which otherwise sees padding; causal attention
// sees nothing after a token anyway, and stays. kDocuments: for all attention, so that
// documents that share a row are kept apart. kFailedPrecondition: no input "tokens" [B, T].
enum class SegmentUse : uint8_t { kPadding, kDocuments };
Result<Graph> with_segments(const Graph& graph, SegmentUse use = SegmentUse::kPadding);

// Returns whether some attention sees tokens after a token: vectors of such a model are of whole texts alone.
bool is_bidirectional(const Graph& graph);

// Finds the hidden states [B, T, C] of a forward model: its output "hidden", or of a causal
// model the input of its output projection. kFailedPrecondition where it has neither.
Result<TensorId> find_hidden(const Graph& forward);

// The output with the classes of texts: "class_logits" of causal models, else "logits".
std::string_view class_output(const Graph& forward);

// One output of a forward model, in f32: `output` is class_output [B, T, N], or "hidden" [B,
// T, C]; a causal model without that output has the input of its output projection. With
// segments where attention is not causal, without dropout, and experts drop no token: a text's
// values do not depend on other texts. kFailedPrecondition where the model has no such output.
Result<Graph> make_embedding(const Graph& forward, std::string_view output);

}  // namespace tessera
