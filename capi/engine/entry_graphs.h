// The graphs that entry points are planned from: a forward graph as settings want it trained, evaluated or
// decoded.
#pragma once

#include "capi/engine/settings.h"
#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// With its loss, dropout, frozen parameters and element types. language_model: the loss is made from
// "logits"; else the graph has its own output "loss".
Result<Graph> forward_with_loss(const Graph& forward, bool language_model, const TrainerSettings& settings);

// Forward, backward and update of a graph with its loss; and its loss alone. Parameters are as they are
// stored.
Result<Graph> step_of(const Graph& with_loss, const TrainerSettings& settings);
Result<Graph> evaluation_of(const Graph& with_loss, const TrainerSettings& settings);

// The step of `forward`, as compile_training plans it where the fused loss is not left to it (off then).
// `settings` are settled (compile.h).
Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings);

// Some tokens more of a text, their logits, and one that is drawn.
Result<Graph> decoding_of(const Graph& forward, const GeneratorSettings& settings);

}  // namespace tessera
