#include "graph/optim/optimizer.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {
constexpr OptimizerDef kOptimizers[] = {
    {"adamw", adamw_defaults, emit_adamw},
    {"sgd", sgd_defaults, emit_sgd},
};
}  // namespace

std::span<const OptimizerDef> all_optimizers() { return kOptimizers; }

const OptimizerDef* find_optimizer(std::string_view name) {
  const auto at = std::ranges::find(kOptimizers, name, &OptimizerDef::name);
  return at == std::end(kOptimizers) ? nullptr : &*at;
}

Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot) {
  const Tensor& parameter = context.graph.tensor(context.parameter);
  const DType dtype = parameter.type.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return context.graph.add_tensor(format("{}.{}", parameter.name, slot), {dtype, parameter.type.shape},
                                  TensorKind::kState);
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
  for (size_t i = 0; i < targets.size(); ++i) {
    TSR_RETURN_IF_ERROR(graph.rename(results[i], graph.tensor(targets[i]).name + ".new"));
    graph.add_update(targets[i], results[i]);
  }
  return {};
}

}  // namespace tessera
