#include "graph/transform/training.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "graph/autodiff.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"
#include "graph/transform/adapter_slots.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/fusion.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"
#include "graph/transform/precision.h"
#include "graph/transform/preference_loss.h"
#include "graph/transform/prune.h"
#include "graph/transform/row_adapters.h"
#include "graph/transform/token_loss.h"

namespace tessera {

namespace {

// The element type of scalars combined with values of `dtype`.
DType scalar_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Result<TensorId> find_loss(const Graph& graph) {
  const auto loss = graph.find_output("loss");
  if (!loss)
    return Status(StatusCode::kFailedPrecondition,
                  "the graph has no output \"loss\"; add_token_loss makes one from \"logits\"");
  return *loss;
}

// Outputs of log probabilities: of whole steps and evaluations, and of accumulations.
constexpr std::string_view kOfSteps[] = {kChosenLogprobs, kRejectedLogprobs};
constexpr std::string_view kOfAccumulations[] = {kLogprobs, kChosenLogprobs, kRejectedLogprobs, kRowLosses};

// The graph with `loss` and its outputs among `logprobs` as its only outputs, in canonical order.
Result<Graph> only_loss(const Graph& forward_with_loss, TensorId loss,
                        std::span<const std::string_view> logprobs) {
  Graph graph = forward_with_loss;
  graph.clear_outputs();
  TSR_RETURN_IF_ERROR(graph.add_output("loss", loss));
  for (const std::string_view name : logprobs)
    if (const auto found = forward_with_loss.find_output(name))
      TSR_RETURN_IF_ERROR(graph.add_output(std::string(name), *found));
  return in_canonical_order(graph);
}

}  // namespace

Status add_token_loss(Graph& graph, bool weighted) {
  const auto logits = graph.find_output("logits");
  if (!logits || graph.type(*logits).shape.rank() < 1)
    return Status(StatusCode::kFailedPrecondition,
                  format("the graph has no output \"logits\" [..., V] to make a token loss from{}",
                         missing_logits(graph)));
  const TensorType type = graph.type(*logits);
  const Shape tokens(type.shape.dims().first(static_cast<size_t>(type.shape.rank() - 1)));
  TSR_ASSIGN_OR_RETURN(const TensorId labels,
                       graph.add_tensor("labels", {DType::kI32, tokens}, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const TensorId loss_scale,
                       graph.add_tensor("loss_scale", {scalar_dtype(type.dtype), {}}, TensorKind::kInput));
  graph.set_scope("loss");
  TSR_ASSIGN_OR_RETURN(const CrossEntropy entropy, add_cross_entropy(graph, *logits, labels));
  TensorId losses = entropy.losses;
  if (weighted) {
    TSR_ASSIGN_OR_RETURN(const TensorId weights,
                         graph.add_tensor("weights", graph.type(losses), TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(losses, graph.add("mul", {losses, weights}));
  }
  std::vector<int64_t> every_dim;
  for (int dim = 0; dim < tokens.rank(); ++dim) every_dim.push_back(dim);
  TSR_ASSIGN_OR_RETURN(const TensorId total, graph.add("reduce_sum", {losses}, {{"axes", every_dim}}));
  TSR_ASSIGN_OR_RETURN(const TensorId loss, graph.add("scale_by", {total, loss_scale}));
  const auto auxiliary = graph.find_output("aux_loss");
  if (!auxiliary) {
    graph.set_scope("");
    return graph.add_output("loss", loss);
  }
  TSR_ASSIGN_OR_RETURN(const TensorId whole, graph.add("add", {loss, *auxiliary}));
  graph.set_scope("");
  TSR_RETURN_IF_ERROR(graph.add_output("loss", whole));
  return graph.add_output("token_loss", loss);
}

namespace {

// The defaults of an optimizer, overridden by the caller's values.
Result<std::map<std::string, double>> hyper_parameters(const OptimizerDef& optimizer,
                                                       const std::map<std::string, double>& overrides) {
  std::map<std::string, double> hyper = defaults_of(optimizer);
  for (const auto& [name, value] : overrides) {
    const auto at = hyper.find(name);
    if (at == hyper.end()) {
      std::vector<std::string> names;
      for (const auto& [known, unused] : hyper) names.push_back(known);
      return Status(StatusCode::kInvalidArgument, format("{} has no '{}'{}", optimizer.name, name,
                                                         nearest_hint(name, names)));
    }
    at->second = value;
  }
  return hyper;
}

// The factor on every gradient: 1 within the bound, less above it, 0 when the norm is not finite, which leaves
// parameters and state as they are. `first` adds an addend of the sum of their squares, of the given type.
// `by_step`: the bound is an input.
Result<std::vector<TensorId>> add_gradient_scale(Graph& graph, std::span<const Gradient> gradients,
                                                 double clip_norm, bool by_step, TensorId loss_scale,
                                                 const std::function<Result<TensorId>(DType)>& first) {
  graph.set_scope("clip");
  TensorId sum = kNoTensor;
  for (const Gradient& gradient : gradients) {
    TSR_ASSIGN_OR_RETURN(const TensorId squares, graph.add("sum_squares", {gradient.gradient}));
    if (sum == kNoTensor) {
      TSR_ASSIGN_OR_RETURN(sum, first(graph.type(squares).dtype));
    }
    TSR_ASSIGN_OR_RETURN(sum, graph.add("add", {sum, squares}));
  }
  std::vector<TensorId> inputs = {sum};
  if (loss_scale != kNoTensor) inputs.push_back(loss_scale);
  std::vector<Attr> attrs = {{"max_norm", norm_bound(clip_norm)}};
  if (by_step) {
    TSR_ASSIGN_OR_RETURN(const TensorId bound, graph.add_tensor(step_setting_input("clip_norm"),
                                                                {DType::kF64, {}}, TensorKind::kInput));
    inputs.push_back(bound);
    attrs.push_back({"by_step", int64_t{1}});
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> scale_and_norm,
                       graph.add_node("clip_scale", inputs, std::move(attrs)));
  TSR_RETURN_IF_ERROR(graph.add_output("grad_norm", scale_and_norm[1]));
  return scale_and_norm;
}

// 0 times the square of the loss: no effect while the loss is finite; else the norm is not finite either.
// (A square reads the loss whole, as the output does; an addend of it would be reduced once more.)
Result<TensorId> add_zero_of_loss(Graph& graph, DType dtype) {
  TSR_ASSIGN_OR_RETURN(const TensorId loss, find_loss(graph));
  TSR_ASSIGN_OR_RETURN(const TensorId square, graph.add("square", {loss}));
  TSR_ASSIGN_OR_RETURN(const TensorId zero, graph.add("scale", {square}, {{"factor", 0.0}}));
  if (graph.type(zero).dtype == dtype) return zero;
  return graph.add("cast", {zero}, {{"dtype", to_text(dtype)}});
}

// The factor on the loss, as state.
class LossScale {
 public:
  // `scalar`: the type of the loss.
  static Result<LossScale> create(Graph& graph, const TensorType& scalar, const LossScaling& scaling) {
    LossScale made(scaling);
    TSR_ASSIGN_OR_RETURN(made.offset_, graph.add_tensor("loss_scaling.offset", scalar, TensorKind::kState));
    return made;
  }
  // Continues in a copy of the graph, and adds the parts of the update.
  Status continue_in(Graph& graph) {
    const auto offset = graph.find_tensor("loss_scaling.offset");
    if (!offset) return Status(StatusCode::kInternal, "the factor on the loss was lost");
    offset_ = *offset;
    TSR_ASSIGN_OR_RETURN(good_,
                         graph.add_tensor("loss_scaling.good", graph.type(offset_), TensorKind::kState));
    return {};
  }
  // Computed again for each use: the forward pass's value is released before the update of parameters.
  Result<TensorId> factor(Graph& graph) const {
    return graph.add("loss_scaling", {offset_}, {{"initial", scaling_.initial}});
  }
  Status update(Graph& graph, TensorId norm) const {
    graph.set_scope("update.loss_scaling");
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> made,
                         graph.add_node("loss_scaling_update", std::vector{offset_, good_, norm},
                                        {{"interval", scaling_.interval}}));
    TSR_RETURN_IF_ERROR(graph.rename(made[0], "loss_scaling.offset.new"));
    TSR_RETURN_IF_ERROR(graph.rename(made[1], "loss_scaling.good.new"));
    graph.add_update(offset_, made[0]);
    graph.add_update(good_, made[1]);
    return {};
  }

 private:
  explicit LossScale(const LossScaling& scaling) : scaling_(scaling) {}
  LossScaling scaling_;
  TensorId offset_ = kNoTensor, good_ = kNoTensor;
};

constexpr std::string_view kLoraPlusMatch = "*.lora_b";

// An optimizer with its hyper-parameters.
struct ChosenOptimizer {
  const OptimizerDef* optimizer = nullptr;
  std::map<std::string, double> hyper;
  const OptimizerOptions& options;
  bool by_step = false;  // settings are inputs of each step

  // Adds the inputs with the settings of each step.
  Result<std::vector<StepSetting>> add_settings(Graph& graph) const {
    std::vector<StepSetting> settings;
    if (!by_step) return settings;
    for (const OptimizerSetting& setting : optimizer->settings) {
      TSR_ASSIGN_OR_RETURN(const TensorId input, graph.add_tensor(step_setting_input(setting.name),
                                                                  {DType::kF64, {}}, TensorKind::kInput));
      settings.push_back({setting.name, input});
    }
    return settings;
  }
  // Returns the hyper-parameters of one parameter's update.
  std::map<std::string, double> hyper_of(const Tensor& parameter) const {
    std::map<std::string, double> own = hyper;
    const ParameterGroup* group = find_group(options.groups, parameter.name);
    if (group != nullptr && group->weight_decay) {
      own["weight_decay"] = *group->weight_decay;
      if (by_step) own["fixed_decay"] = 1;
    } else if (!decays_by_default(parameter)) {
      own["weight_decay"] = 0;
      if (by_step) own["fixed_decay"] = 1;
    }
    double factor = group == nullptr ? 1 : group->lr_factor;
    if (matches_wildcard(kLoraPlusMatch, parameter.name) || parameter.name.ends_with(kAdapterB)) factor *= options.lora_plus_ratio;
    if (factor != 1) own["lr_scale"] = factor;
    return own;
  }
};

// `forward`: the graph of the updated parameters. The options must outlive it.
Result<ChosenOptimizer> choose_optimizer(const Graph& forward, const TrainingOptions& options) {
  const OptimizerDef* optimizer = find_optimizer(options.optimizer.name);
  if (optimizer == nullptr) {
    std::vector<std::string> names;
    for (const OptimizerDef* known : all_optimizers()) names.emplace_back(known->name);
    return Status(StatusCode::kNotFound, format("optimizer '{}' is not known; known: {}",
                                                options.optimizer.name, join(names, ", ")));
  }
  if (!(options.clip_norm >= 0))
    return Status(StatusCode::kInvalidArgument,
                  format("clip_norm is {}, wanted 0 (no bound) or more", options.clip_norm));
  TSR_ASSIGN_OR_RETURN(auto hyper, hyper_parameters(*optimizer, options.optimizer.hyper));
  for (const ParameterGroup& group : options.optimizer.groups)
    TSR_RETURN_IF_ERROR(check_matches("groups", group.match, forward));
  if (options.optimizer.lora_plus_ratio != 1 && !has_adapter_slots(forward))
    TSR_RETURN_IF_ERROR(check_matches("lora_plus_ratio", kLoraPlusMatch, forward));
  return ChosenOptimizer{optimizer, std::move(hyper), options.optimizer,
                         options.step_settings && optimizer->has_step_settings};
}

// A graph of forward and backward, with the gradients of the loss.
struct DifferentiatedGraph {
  Graph graph;
  TensorType scalar;  // of the loss
  std::optional<LossScale> loss_scale;
};

Result<DifferentiatedGraph> differentiated(const Graph& forward_with_loss, const TrainingOptions& options,
                                           std::span<const std::string_view> logprobs) {
  TSR_ASSIGN_OR_RETURN(const TensorId loss, find_loss(forward_with_loss));
  TSR_ASSIGN_OR_RETURN(Graph step, only_loss(forward_with_loss, loss, logprobs));
  TSR_ASSIGN_OR_RETURN(step, with_constant_as_input(step));
  TensorId scaled_loss = *step.find_output("loss");
  const TensorType scalar{scalar_dtype(step.type(scaled_loss).dtype), {}};
  std::optional<LossScale> loss_scale;
  if (options.loss_scaling.initial != 0) {
    TSR_ASSIGN_OR_RETURN(loss_scale, LossScale::create(step, scalar, options.loss_scaling));
    step.set_scope("loss");
    TSR_ASSIGN_OR_RETURN(const TensorId factor, loss_scale->factor(step));
    TSR_ASSIGN_OR_RETURN(scaled_loss, step.add("scale_by", {scaled_loss, factor}));
    step.set_scope("");
  }
  TSR_RETURN_IF_ERROR(differentiate(step, scaled_loss));
  TSR_ASSIGN_OR_RETURN(step, with_constant_computed(step));
  TSR_ASSIGN_OR_RETURN(step, with_fused_loss_gradient(step));
  if (options.fp8_matmuls) {
    TSR_ASSIGN_OR_RETURN(step, with_fp8_matmuls(step));
  }
  if (options.fused_gelu_gradients) {
    TSR_ASSIGN_OR_RETURN(step, with_fused_gelu_gradients(step));
  }
  return DifferentiatedGraph{std::move(step), scalar, loss_scale};
}

// Adds the update from `gradients`, clipped. `first`: as for add_gradient_scale.
Status add_update(DifferentiatedGraph& differentiated, std::span<const Gradient> gradients,
                  const TrainingOptions& options, const ChosenOptimizer& chosen,
                  const std::function<Result<TensorId>(DType)>& first) {
  Graph& step = differentiated.graph;
  std::optional<LossScale>& loss_scale = differentiated.loss_scale;
  if (loss_scale) TSR_RETURN_IF_ERROR(loss_scale->continue_in(step));
  TSR_ASSIGN_OR_RETURN(const TensorId lr, step.add_tensor("lr", differentiated.scalar, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const TensorId step_number,
                       step.add_tensor("step", differentiated.scalar, TensorKind::kInput));
  step.set_phase(Phase::kUpdate);
  TensorId factor = kNoTensor;
  if (loss_scale) {
    step.set_scope("clip");
    TSR_ASSIGN_OR_RETURN(factor, loss_scale->factor(step));
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> scale_and_norm,
                       add_gradient_scale(step, gradients, options.clip_norm, options.step_settings, factor, first));
  TSR_ASSIGN_OR_RETURN(const std::vector<StepSetting> settings, chosen.add_settings(step));
  for (const Gradient& gradient : gradients) {
    const Tensor& parameter = step.tensor(gradient.parameter);
    const std::map<std::string, double> own = chosen.hyper_of(parameter);
    step.set_scope("update." + parameter.name);
    TSR_RETURN_IF_ERROR(chosen.optimizer->emit(
        {step, gradient.parameter, gradient.gradient, lr, step_number, scale_and_norm[0], settings}, own));
  }
  if (loss_scale) TSR_RETURN_IF_ERROR(loss_scale->update(step, scale_and_norm[1]));
  step.set_scope("");
  step.set_phase(Phase::kForward);
  return {};
}

std::vector<Gradient> gradients_of(const Graph& graph) {
  return {graph.gradients().begin(), graph.gradients().end()};
}

// Adds state in which the gradient waits; differentiation gives the gradient itself that name.
Result<TensorId> add_gradient_state(Graph& graph, const Gradient& gradient) {
  const std::string name = gradient_state_name(graph.tensor(gradient.parameter).name);
  if (const auto taken = graph.find_tensor(name); taken)
    TSR_RETURN_IF_ERROR(graph.rename(*taken, name + ".addend"));
  return graph.add_tensor(name, graph.type(gradient.gradient), TensorKind::kState);
}

Status add_state_update(Graph& graph, TensorId state, TensorId value) {
  TSR_RETURN_IF_ERROR(graph.rename(value, graph.tensor(state).name + ".new"));
  graph.add_update(state, value);
  return {};
}

// The graph without dropout, with the matmuls of a step.
Result<Graph> without_training(const Graph& forward, bool fp8_matmuls) {
  TSR_ASSIGN_OR_RETURN(Graph sure, without_dropout(forward));
  if (fp8_matmuls) {
    TSR_ASSIGN_OR_RETURN(sure, with_fp8_matmuls(sure));
  }
  return prune(sure);
}

Result<Graph> without_unread_inputs(const Graph& graph) {
  std::vector<bool> is_read(graph.tensors().size(), false);
  for (const Node& node : graph.nodes())
    for (const TensorId input : node.inputs) is_read[index(input)] = true;
  GraphCopy copy(graph);
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      if (is_read[t] || tensor.kind != TensorKind::kInput) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

// The nodes of the update alone, and `gradients`, which are state.
Result<Graph> only_update(const Graph& step, std::span<const Gradient> gradients) {
  GraphCopy copy(step);
  std::vector<bool> is_read(step.tensors().size(), false);
  for (const Node& node : step.nodes())
    if (node.phase == Phase::kUpdate)
      for (const TensorId input : node.inputs) is_read[index(input)] = true;
  for (size_t t = 0; t < step.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = step.tensor(id);
    if (tensor.producer == kNoNode) {
      if (is_read[t]) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (tensor.output_index == 0 && step.node(tensor.producer).phase == Phase::kUpdate) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  for (const Gradient& gradient : gradients)
    copy.graph().add_gradient(copy.mapped(gradient.parameter), copy.mapped(gradient.gradient));
  return std::move(copy.graph());
}

}  // namespace

std::string gradient_state_name(std::string_view parameter) { return format("{}.grad", parameter); }

std::string step_setting_input(std::string_view setting) { return format("optimizer.{}", setting); }

double norm_bound(double clip_norm) {
  constexpr double kNoBound = 1e30;  // larger than any norm of f32 gradients whose sum of squares is finite
  return clip_norm > 0 ? clip_norm : kNoBound;
}

Result<Graph> make_training_step(const Graph& forward_with_loss, const TrainingOptions& given) {
  TrainingOptions options = given;
  options.step_settings = false;  // of updates apart
  TSR_ASSIGN_OR_RETURN(const ChosenOptimizer chosen, choose_optimizer(forward_with_loss, options));
  TSR_ASSIGN_OR_RETURN(DifferentiatedGraph step, differentiated(forward_with_loss, options, kOfSteps));
  TSR_RETURN_IF_ERROR(add_update(step, gradients_of(step.graph), options, chosen,
                                 [&](DType dtype) { return add_zero_of_loss(step.graph, dtype); }));
  return prune(step.graph);
}

Result<Graph> make_accumulation(const Graph& forward_with_loss, const TrainingOptions& options) {
  TSR_ASSIGN_OR_RETURN(DifferentiatedGraph made,
                       differentiated(forward_with_loss, options, kOfAccumulations));
  Graph& graph = made.graph;
  graph.set_phase(Phase::kUpdate);
  for (const Gradient& gradient : gradients_of(graph)) {
    graph.set_scope("accumulate." + graph.tensor(gradient.parameter).name);
    TSR_ASSIGN_OR_RETURN(const TensorId state, add_gradient_state(graph, gradient));
    TSR_ASSIGN_OR_RETURN(TensorId sum, add_slot_gradient(graph, state, gradient.gradient));
    graph.set_phase(Phase::kUpdate);
    if (sum == kNoTensor) {
      TSR_ASSIGN_OR_RETURN(sum, graph.add("add", {state, gradient.gradient}));
    }
    TSR_RETURN_IF_ERROR(add_state_update(graph, state, sum));
  }
  graph.set_scope("");
  graph.set_phase(Phase::kForward);
  return prune(graph);
}

Result<Graph> make_update(const Graph& forward_with_loss, const TrainingOptions& options) {
  TSR_ASSIGN_OR_RETURN(const ChosenOptimizer chosen, choose_optimizer(forward_with_loss, options));
  TSR_ASSIGN_OR_RETURN(DifferentiatedGraph made, differentiated(forward_with_loss, options, {}));
  Graph& graph = made.graph;
  std::vector<Gradient> accumulated;
  for (const Gradient& gradient : gradients_of(graph)) {
    TSR_ASSIGN_OR_RETURN(const TensorId state, add_gradient_state(graph, gradient));
    accumulated.push_back({gradient.parameter, state});
  }
  TSR_RETURN_IF_ERROR(add_update(made, accumulated, options, chosen, [&](DType dtype) {
    return graph.add_tensor("norm_offset", {dtype, {}}, TensorKind::kInput);
  }));
  graph.set_phase(Phase::kUpdate);
  for (const Gradient& gradient : accumulated) {
    graph.set_scope("clear." + graph.tensor(gradient.parameter).name);
    TSR_ASSIGN_OR_RETURN(const TensorId zero, graph.add("zeros_like", {gradient.gradient}));
    TSR_RETURN_IF_ERROR(add_state_update(graph, gradient.gradient, zero));
  }
  graph.set_scope("");
  graph.set_phase(Phase::kForward);
  TSR_ASSIGN_OR_RETURN(Graph update, only_update(graph, accumulated));
  return has_adapter_slots(forward_with_loss) ? with_slot_update(update) : std::move(update);
}

Result<Graph> make_forward(const Graph& forward_with_logprobs, bool fp8_matmuls) {
  const auto logprobs = forward_with_logprobs.find_output(kLogprobs);
  if (!logprobs)
    return Status(StatusCode::kFailedPrecondition,
                  format("the graph has no output \"{}\"; add_accumulated_loss makes it", kLogprobs));
  Graph graph = forward_with_logprobs;
  graph.clear_outputs();
  TSR_RETURN_IF_ERROR(graph.add_output(std::string(kLogprobs), *logprobs));
  TSR_ASSIGN_OR_RETURN(graph, in_canonical_order(graph));
  TSR_ASSIGN_OR_RETURN(graph, prune(graph));
  TSR_ASSIGN_OR_RETURN(graph, without_unread_inputs(graph));  // those of the loss
  return without_training(graph, fp8_matmuls);
}

Result<Graph> make_evaluation(const Graph& forward_with_loss, bool fp8_matmuls) {
  TSR_ASSIGN_OR_RETURN(TensorId loss, find_loss(forward_with_loss));
  if (const auto of_tokens = forward_with_loss.find_output("token_loss")) loss = *of_tokens;
  TSR_ASSIGN_OR_RETURN(const Graph evaluation, only_loss(forward_with_loss, loss, kOfSteps));
  return without_training(evaluation, fp8_matmuls);
}

}  // namespace tessera
