#include "graph/optim/optimizer.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {
constexpr OptimizerDef kOptimizers[] = {
    {"adafactor", adafactor_defaults, emit_adafactor},
    {"adamw", adamw_defaults, emit_adamw},
    {"adamw8", adamw8_defaults, emit_adamw8},
    {"lion", lion_defaults, emit_lion},
    {"muon", muon_defaults, emit_muon},
    {"sgd", sgd_defaults, emit_sgd},
};
}  // namespace

std::span<const OptimizerDef> all_optimizers() { return kOptimizers; }

const OptimizerDef* find_optimizer(std::string_view name) {
  const auto at = std::ranges::find(kOptimizers, name, &OptimizerDef::name);
  return at == std::end(kOptimizers) ? nullptr : &*at;
}

Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot) {
  return add_optimizer_state(context, slot, Shape(context.graph.type(context.parameter).shape));
}

Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const Shape& shape) {
  const bool wide = context.graph.type(context.parameter).dtype == DType::kF64;
  return add_optimizer_state(context, slot, TensorType{wide ? DType::kF64 : DType::kF32, shape});
}

Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const TensorType& type) {
  return context.graph.add_tensor(format("{}.{}", context.graph.tensor(context.parameter).name, slot), type,
                                  TensorKind::kState);
}

Status add_named_update(Graph& graph, TensorId target, TensorId value) {
  TSR_RETURN_IF_ERROR(graph.rename(value, graph.tensor(target).name + ".new"));
  graph.add_update(target, value);
  return {};
}

Status emit_update(const OptimizerContext& context, std::string_view op, std::span<const TensorId> state,
                   std::span<const TensorId> scalars, const std::map<std::string, double>& hyper) {
  Graph& graph = context.graph;
  std::vector<TensorId> targets = {context.parameter};
  targets.insert(targets.end(), state.begin(), state.end());

  std::vector<TensorId> inputs = {context.parameter, context.gradient};
  inputs.insert(inputs.end(), state.begin(), state.end());
  inputs.insert(inputs.end(), scalars.begin(), scalars.end());
  if (context.gradient_scale != kNoTensor) inputs.push_back(context.gradient_scale);
  std::vector<Attr> attrs;
  for (const auto& [name, value] : hyper) attrs.push_back({name, value});

  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results, graph.add_node(op, inputs, std::move(attrs)));
  if (results.size() != targets.size())
    return Status(StatusCode::kInternal,
                  format("{} makes {} results for {} targets", op, results.size(), targets.size()));
  for (size_t i = 0; i < targets.size(); ++i)
    TSR_RETURN_IF_ERROR(add_named_update(graph, targets[i], results[i]));
  return {};
}

}  // namespace tessera
