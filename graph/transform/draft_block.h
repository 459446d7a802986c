// A model's draft block (graph/models/draft_block.h) as part of its graph: the model without it, and the block as a model.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

inline constexpr std::string_view kDraftHidden = "draft_hidden", kDraftLogits = "draft_logits";

bool has_draft_block(const Graph& graph);
// The graph without what only "draft_logits" needs; itself where there is no draft block.
Result<Graph> without_draft_block(const Graph& graph);
// The draft block as a language model that reads hidden states, too: inputs "tokens", "positions" and "draft_hidden", output
// "logits". kInvalidArgument: the graph has no draft block.
Result<Graph> draft_block_of(const Graph& graph);

}  // namespace tessera
