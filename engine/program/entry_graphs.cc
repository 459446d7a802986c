// Each entry is the forward graph, rewritten in order: dropout, frozen parameters, segments, loss, precision, gradients and
// updates, then the weights' stored types.
#include "engine/program/entry_graphs.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/model/rewrite.h"
#include "engine/program/serving_settings.h"
#include "graph/analysis/index_inputs.h"
#include "graph/base/text.h"
#include "graph/transform/adapter_slots.h"
#include "graph/transform/adapters.h"
#include "graph/transform/embedding.h"
#include "graph/transform/fusion.h"
#include "graph/transform/label_margins.h"
#include "graph/transform/language_model.h"
#include "graph/transform/precision.h"
#include "graph/transform/preference_loss.h"
#include "graph/transform/scoring.h"
#include "graph/transform/training.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

Status require(const Graph& graph, TensorKind kind, std::string_view name, std::string_view purpose) {
  const bool found = kind == TensorKind::kInput
                         ? graph.find_tensor(name) && graph.tensor(*graph.find_tensor(name)).kind == kind
                         : graph.find_output(name).has_value();
  if (found) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{} needs the {} '{}', which this graph does not have{}", purpose,
                       kind == TensorKind::kInput ? "input" : "output", name,
                       name == "logits" ? missing_logits(graph) : std::string()));
}

// Checks a learned table of positions: beyond its end rows would silently read as zeros.
Status check_positions(const Graph& graph, int64_t seq) {
  const std::optional<TensorId> positions = graph.find_tensor("positions");
  if (!positions) return {};
  for (const Node& node : graph.nodes()) {
    const auto look_up = find_look_up(graph, node);
    if (!look_up || look_up->ids != *positions || seq <= look_up->rows) continue;
    return Status(StatusCode::kInvalidArgument,
                  format("option 'seq' is {}, the model has {} positions ('{}')", seq, look_up->rows,
                         graph.tensor(look_up->table).name));
  }
  return {};
}

// Separates documents that share a row. Only attention mixes their tokens; other mixing ops are refused.
Result<Graph> segmented(const Graph& graph, SegmentUse use) {
  const auto takes_segments = [](const Node& node) { return node.op->context.segments >= 0; };
  if (use == SegmentUse::kDocuments && std::ranges::none_of(graph.nodes(), takes_segments))
    return Status(
        StatusCode::kUnsupported,
        "the dataset packs several documents into a row, and the model has no attention op that could keep "
        "them apart: use packing off");
  const bool is_causal = std::ranges::none_of(graph.nodes(), [](const Node& node) {
    return node.op->context.mixes_tokens && attr_i64_or(node.attrs, "causal", 1) == 0;
  });
  // Padding follows the text, where causal attention does not look.
  if (use == SegmentUse::kPadding && is_causal) return graph;
  return with_segments(graph, use);
}

Result<Graph> with_parameters_as_set(Result<Graph> graph, const StoredTypes& stored,
                                     const TrainerSettings& settings) {
  if (!graph.ok()) return graph;
  const WeightStorage storage{
      .types = stored,
      .q8_activations = settings.evaluate_only && rounds_to_q8(settings.eval_activations),
      .bf16_activations = settings.evaluate_only && rounds_to_bf16(settings.eval_activations)};
  TSR_ASSIGN_OR_RETURN(Graph with_types, with_stored_weights(*graph, storage));
  return settings.bf16_weights ? with_bf16_parameters(with_types) : Result<Graph>(std::move(with_types));
}

// Converts the graph to the computing precision.
Result<Graph> computed_in(const Graph& graph, const InferenceSettings& inference) {
  if (inference.precision == DType::kF32) return graph;
  return with_mixed_precision(graph, inference.precision);
}

// Converts weights to their storage types: `stored`, or those of the settings.
Result<Graph> with_weights(const Graph& graph, const LogicalGraph& logical,
                           const InferenceSettings& inference) {
  TSR_ASSIGN_OR_RETURN(
      Graph made, with_stored_weights(graph, {.types = logical.stored,
                                              .matrices = inference.weights,
                                              .q8_activations = rounds_to_q8(inference.activations),
                                              .bf16_activations = rounds_to_bf16(inference.activations)}));
  return inference.tf32_matmuls ? with_tf32_matmuls(made) : std::move(made);
}

// Converts weights to their types in evaluations.
Result<Graph> with_evaluated_weights(Graph graph, const StoredTypes& stored,
                                     const TrainerSettings& settings) {
  if (settings.eval_weights)
    return with_stored_weights(graph, {.types = stored,
                                       .matrices = settings.eval_weights,
                                       .q8_activations = rounds_to_q8(settings.eval_activations),
                                       .bf16_activations = rounds_to_bf16(settings.eval_activations)});
  return with_parameters_as_set(std::move(graph), stored, settings);
}

// Removes trained parameters from `stored`; they are f32 in evaluations too.
void erase_trained(StoredTypes& stored, const Graph& graph, const TrainerSettings& settings) {
  if (settings.evaluate_only) return;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (graph.tensor(id).trainable) stored.erase(graph.tensor(id).name);
}

// The forward graph in the precision of training, and the types of frozen parameters.
Result<LogicalGraph> forward_as_trained(const Graph& given, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(given));
  TSR_RETURN_IF_ERROR(train_only(logical.graph, settings.trained));
  TSR_RETURN_IF_ERROR(freeze(logical.graph, settings.frozen));
  erase_trained(logical.stored, logical.graph, settings);
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(logical.graph, with_mixed_precision(logical.graph, settings.precision));
  }
  return logical;
}

// A graph derived from forward_as_trained, with the trainer's weights.
Result<Graph> with_weights_as_trained(const Graph& graph, const StoredTypes& stored,
                                      const TrainerSettings& settings) {
  Graph made = graph;
  if (settings.tf32_matmuls) {
    TSR_ASSIGN_OR_RETURN(made, with_tf32_matmuls(graph));
  }
  return with_evaluated_weights(std::move(made), stored, settings);
}

Status require_language_model(const Graph& forward, std::string_view doing) {
  TSR_RETURN_IF_ERROR(require(forward, TensorKind::kInput, "tokens", doing));
  return require(forward, TensorKind::kActivation, "logits", doing);
}

// Scales the model's auxiliary loss, if it has one.
Status scale_auxiliary_loss(Graph& graph, double factor) {
  const auto auxiliary = graph.find_output("aux_loss");
  if (!auxiliary) return {};
  TSR_ASSIGN_OR_RETURN(const TensorId scaled, graph.add("scale", {*auxiliary}, {{"factor", factor}}));
  return graph.add_output("aux_loss", scaled);
}

// Adds the slots for adapters.
Result<Graph> with_slots(const Graph& forward, const TrainerSettings& settings) {
  std::vector<TensorId> weights;
  for (const std::string& name : settings.adapter_weights) {
    const std::optional<TensorId> found = forward.find_tensor(name);
    if (!found) return Status(StatusCode::kNotFound, format("adapters: the model has no weight '{}'", name));
    weights.push_back(*found);
  }
  return with_adapter_slots(forward, weights, {.slots = settings.adapters, .rank = settings.adapter_rank, .dropout = settings.adapter_dropout});
}

// `loss`: of accumulations; nullopt: of a whole step.
Result<LogicalGraph> with_loss_of(const Graph& given, bool language_model, std::optional<TokenLoss> loss,
                                  const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(given));
  const Graph& forward = logical.graph;
  Graph with_loss = forward;
  if (settings.dropout > 0 && !has_dropout(forward))
    return Status(StatusCode::kInvalidArgument,
                  format("option 'dropout' is {}, the model has no dropout op", settings.dropout));
  if (has_dropout(forward) && settings.dropout >= 0) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_dropout(forward, settings.dropout));
  }
  if (settings.adapters > 0) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_slots(with_loss, settings));
  }
  TSR_RETURN_IF_ERROR(train_only(with_loss, settings.trained));
  TSR_RETURN_IF_ERROR(freeze(with_loss, settings.frozen));
  if (language_model) {
    const std::string_view purpose = loss ? "training in parts" : "training on a dataset";
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kInput, "tokens", purpose));
    const std::optional<SegmentUse> segments =
        loss && settings.batch_segments ? SegmentUse::kDocuments : settings.segments;
    if (segments) {
      TSR_ASSIGN_OR_RETURN(with_loss, segmented(with_loss, *segments));
    }
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "logits", purpose));
    // The mean over the sequences of all batches.
    if (!loss && settings.accumulate > 1)
      TSR_RETURN_IF_ERROR(scale_auxiliary_loss(with_loss, 1 / static_cast<double>(settings.accumulate)));
    TSR_RETURN_IF_ERROR(loss                  ? add_accumulated_loss(with_loss, *loss)
                        : settings.preference ? add_preference_loss(with_loss, *settings.preference)
                                              : add_token_loss(with_loss, settings.has_weights));
    if (settings.fused_loss == FusedLoss::kOn) {
      TSR_ASSIGN_OR_RETURN(with_loss, with_fused_loss(with_loss));
    }
  } else if (settings.accumulate > 1) {
    return Status(
        StatusCode::kInvalidArgument,
        format("trainer: option 'accumulate' is {}, and there is no dataset whose batches a step would add "
               "up: wanted 1, or option losses and tsr_trainer_forward_backward",
               settings.accumulate));
  } else {
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "loss", "training without a dataset"));
  }
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_mixed_precision(with_loss, settings.precision));
  }
  if (settings.tf32_matmuls) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_tf32_matmuls(with_loss));
  }
  erase_trained(logical.stored, with_loss, settings);
  return LogicalGraph{std::move(with_loss), std::move(logical.stored)};
}

}  // namespace

Result<LogicalGraph> forward_with_loss(const Graph& forward, bool language_model,
                                       const TrainerSettings& settings) {
  return with_loss_of(forward, language_model, std::nullopt, settings);
}

Result<LogicalGraph> forward_with_loss(const Graph& forward, TokenLoss loss,
                                       const TrainerSettings& settings) {
  return with_loss_of(forward, true, loss, settings);
}

Result<Graph> accumulation_of(const LogicalGraph& with_loss, const TrainerSettings& settings) {
  return with_parameters_as_set(make_accumulation(with_loss.graph, settings.step), with_loss.stored,
                                settings);
}

Result<Graph> update_of(const LogicalGraph& with_loss, const TrainerSettings& settings) {
  return with_parameters_as_set(make_update(with_loss.graph, settings.step), with_loss.stored, settings);
}

Result<Graph> logprobs_of(const LogicalGraph& with_loss, const TrainerSettings& settings) {
  return with_parameters_as_set(make_forward(with_loss.graph, settings.step.fp8_matmuls), with_loss.stored,
                                settings);
}

Result<Graph> step_of(const LogicalGraph& with_loss, const TrainerSettings& settings) {
  return with_parameters_as_set(make_training_step(with_loss.graph, settings.step), with_loss.stored,
                                settings);
}

Result<Graph> evaluation_of(const LogicalGraph& with_loss, bool language_model,
                            const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(Graph evaluation, make_evaluation(with_loss.graph, settings.step.fp8_matmuls));
  if (language_model && !settings.preference) {
    TSR_ASSIGN_OR_RETURN(evaluation, with_label_margins(evaluation));
  }
  return with_evaluated_weights(std::move(evaluation), with_loss.stored, settings);
}

Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph with_loss, forward_with_loss(forward, language_model, settings));
  return step_of(with_loss, settings);
}

namespace {

Status require_served(const Graph& forward) {
  if (is_bidirectional(forward))
    return Status(
        StatusCode::kInvalidArgument,
        "serving: the model reads texts in both directions, so that every token changes those before it; "
        "wanted a causal model. Vectors and classes of its texts: tsr_embedder (tessera embed, tessera "
        "classify)");
  return require_language_model(forward, "serving");
}

}  // namespace

Result<Graph> serving_of(const Graph& given, const ServingSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(given));
  TSR_RETURN_IF_ERROR(require_served(logical.graph));
  TSR_ASSIGN_OR_RETURN(const Graph computed, computed_in(logical.graph, settings.inference));
  TSR_ASSIGN_OR_RETURN(const Graph serving, make_serving(computed, serving_options(settings)));
  return with_weights(serving, logical, settings.inference);
}

Result<Graph> serving_as_trained(const Graph& given, const ServingSettings& settings,
                                 const TrainerSettings& trainer) {
  TSR_RETURN_IF_ERROR(require_served(given));
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, forward_as_trained(given, trainer));
  TSR_ASSIGN_OR_RETURN(const Graph serving, make_serving(logical.graph, serving_options(settings)));
  return with_weights_as_trained(serving, logical.stored, trainer);
}

Result<Graph> scoring_of(const Graph& given, const ScorerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(given));
  TSR_RETURN_IF_ERROR(require_language_model(logical.graph, "scoring"));
  TSR_RETURN_IF_ERROR(check_positions(logical.graph, settings.seq));
  TSR_ASSIGN_OR_RETURN(const Graph scoring, make_scoring(logical.graph));
  TSR_ASSIGN_OR_RETURN(const Graph computed, computed_in(scoring, settings.inference));
  return with_weights(computed, logical, settings.inference);
}

Result<Graph> embedding_of(const Graph& given, const EmbedderSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(given));
  TSR_RETURN_IF_ERROR(check_positions(logical.graph, settings.seq));
  const bool is_embedding = settings.output == EmbedderSettings::Output::kEmbedding;
  TSR_ASSIGN_OR_RETURN(const Graph computed, computed_in(logical.graph, settings.inference));
  const std::string_view output = is_embedding ? "hidden" : class_output(computed);
  TSR_ASSIGN_OR_RETURN(const Graph embedding, make_embedding(computed, output));
  return with_weights(embedding, logical, settings.inference);
}

}  // namespace tessera
