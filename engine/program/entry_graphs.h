// Graphs of entry points, as they are planned: a forward graph made ready for training, evaluation,
// decoding or scoring.
#pragma once

#include "engine/settings/embedder_settings.h"
#include "engine/settings/trainer_settings.h"
#include "engine/settings/window_settings.h"
#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

struct ServingSettings;

// The forward graph with its loss, dropout, frozen parameters and element types. Its weights are f32;
// `stored` has the types that the model keeps them in. With language_model the loss is made from "logits";
// else the graph has its own output "loss".
Result<LogicalGraph> forward_with_loss(const Graph& forward, bool language_model,
                                       const TrainerSettings& settings);
// The same of a language model with a loss of accumulations.
Result<LogicalGraph> forward_with_loss(const Graph& forward, TokenLoss loss, const TrainerSettings& settings);

// Forward, backward and update of a graph with its loss; and its loss alone. Parameters that do not train
// have their stored types.
Result<Graph> step_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> evaluation_of(const LogicalGraph& with_loss, bool language_model,
                            const TrainerSettings& settings);

// A step in parts (graph/transform/training.h), of graphs with a loss of accumulations.
Result<Graph> accumulation_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> update_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> logprobs_of(const LogicalGraph& with_loss, const TrainerSettings& settings);

// The step of `forward` as compile_training plans it when the fused loss is off rather than automatic.
// `settings` are complete (compile.h).
Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings);

// The graph of a server's step (serving_settings.h), with weights and precision as a trainer has them. The trainer's
// settings are complete (compile.h).
Result<Graph> serving_as_trained(const Graph& forward, const ServingSettings& settings,
                                 const TrainerSettings& trainer);

// The graph that scores windows of tokens (graph/transform/scoring.h). `settings` are finalized.
Result<Graph> scoring_of(const Graph& forward, const ScorerSettings& settings);

// The graph that computes what an embedder reads (graph/transform/embedding.h). `settings` are finalized.
Result<Graph> embedding_of(const Graph& forward, const EmbedderSettings& settings);

}  // namespace tessera
