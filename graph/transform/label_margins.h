// Label margins: each label's logit compared with the largest, without logits where the loss has none.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The output [B, T] of an evaluation: the largest logit of each row minus the label's, 0 or less where no token has a
// larger one. Rows with a negative label have any value.
inline constexpr std::string_view kLabelMargins = "label_margins";

// Adds the output to an evaluation of a language model (make_evaluation). A
// fused loss becomes its phases, which compute the logits twice and keep none.
Result<Graph> with_label_margins(const Graph& evaluation);

}  // namespace tessera
