#include "capi/engine/entry_graphs.h"

#include <string_view>
#include <utility>

#include "capi/engine/rewrite.h"
#include "graph/base/text.h"
#include "graph/transform/decoding.h"
#include "graph/transform/fusion.h"
#include "graph/transform/precision.h"
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
                format("{} needs the {} '{}', which this graph does not have", purpose,
                       kind == TensorKind::kInput ? "input" : "output", name));
}

Result<Graph> with_parameters_as_set(Result<Graph> graph, const TrainerSettings& settings) {
  if (!graph.ok() || !settings.bf16_weights) return graph;
  return with_bf16_parameters(*graph);
}

}  // namespace

Result<Graph> forward_with_loss(const Graph& forward, bool language_model, const TrainerSettings& settings) {
  Graph with_loss = forward;
  if (settings.dropout > 0 && !has_op(forward, "dropout"))
    return Status(StatusCode::kInvalidArgument,
                  format("option 'dropout' is {}, the model has no dropout op", settings.dropout));
  if (has_op(forward, "dropout") && settings.dropout >= 0) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_dropout(forward, settings.dropout));
  }
  TSR_RETURN_IF_ERROR(freeze(with_loss, settings.frozen));
  if (language_model) {
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kInput, "tokens", "training on a dataset"));
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "logits", "training on a dataset"));
    TSR_RETURN_IF_ERROR(add_token_loss(with_loss));
    if (settings.fused_loss == FusedLoss::kOn) {
      TSR_ASSIGN_OR_RETURN(with_loss, with_fused_loss(with_loss));
    }
  } else {
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "loss", "training without a dataset"));
  }
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_mixed_precision(with_loss, settings.precision));
  }
  if (settings.tf32_matmuls) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_tf32_matmuls(with_loss));
  }
  return with_loss;
}

Result<Graph> step_of(const Graph& with_loss, const TrainerSettings& settings) {
  return with_parameters_as_set(make_training_step(with_loss, settings.step), settings);
}

Result<Graph> evaluation_of(const Graph& with_loss, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(Graph evaluation, make_evaluation(with_loss, settings.step.fp8_matmuls));
  if (settings.eval_weights != WeightFormat::kModel)
    return with_stored_weights(evaluation, settings.eval_weights);
  return with_parameters_as_set(std::move(evaluation), settings);
}

Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const Graph with_loss, forward_with_loss(forward, language_model, settings));
  return step_of(with_loss, settings);
}

Result<Graph> decoding_of(const Graph& forward, const GeneratorSettings& settings) {
  TSR_RETURN_IF_ERROR(require(forward, TensorKind::kInput, "tokens", "generating"));
  TSR_RETURN_IF_ERROR(require(forward, TensorKind::kActivation, "logits", "generating"));
  Graph computed = forward;
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(computed, with_mixed_precision(forward, settings.precision));
  }
  TSR_ASSIGN_OR_RETURN(Graph decoding,
                       make_decoding(computed, {.cache_capacity = settings.context, .sample = true}));
  TSR_ASSIGN_OR_RETURN(decoding, with_stored_weights(decoding, settings.weights));
  if (settings.tf32_matmuls) {
    TSR_ASSIGN_OR_RETURN(decoding, with_tf32_matmuls(decoding));
  }
  return decoding;
}

}  // namespace tessera
