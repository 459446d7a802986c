// Graphs of entry points before planning: a forward graph
// prepared for training, evaluation, decoding or scoring.
#pragma once

#include "engine/settings/embedder_settings.h"
#include "engine/settings/trainer_settings.h"
#include "engine/settings/window_settings.h"
#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

struct ServingSettings;

// The forward graph with loss, dropout, frozen parameters and element types.
// Weights are f32; `stored` has the model's types. With language_model the
// loss is computed from "logits"; else the graph has an output "loss".
Result<LogicalGraph> forward_with_loss(const Graph& forward, bool language_model,
                                       const TrainerSettings& settings);
// The same for a language model with an accumulated loss.
Result<LogicalGraph> forward_with_loss(const Graph& forward, TokenLoss loss, const TrainerSettings& settings);

// The whole step of a graph with its loss (forward, backward, update), and
// the evaluation of its loss. Frozen parameters have their stored types.
Result<Graph> step_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> evaluation_of(const LogicalGraph& with_loss, bool language_model,
                            const TrainerSettings& settings);

// A partial step (graph/transform/training.h) of a graph with an accumulated loss.
Result<Graph> accumulation_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> update_of(const LogicalGraph& with_loss, const TrainerSettings& settings);
Result<Graph> logprobs_of(const LogicalGraph& with_loss, const TrainerSettings& settings);

// The step that compile_training plans with the fused
// loss off. `settings` are finalized (compile.h).
Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings);

// The graph of a server's step (serving_settings.h) with a trainer's
// weights and precision. The trainer's settings are finalized (compile.h).
Result<Graph> serving_as_trained(const Graph& forward, const ServingSettings& settings,
                                 const TrainerSettings& trainer);

// The graph that scores windows of tokens (graph/transform/scoring.h). `settings` are finalized.
Result<Graph> scoring_of(const Graph& forward, const ScorerSettings& settings);

// The graph of an embedder's outputs (graph/transform/embedding.h). `settings` are finalized.
Result<Graph> embedding_of(const Graph& forward, const EmbedderSettings& settings);

}  // namespace tessera
