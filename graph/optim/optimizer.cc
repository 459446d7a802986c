#include "graph/optim/optimizer.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "graph/optim/optimizers.h"

namespace tessera {

// The table: one declaration and one row an optimizer.
extern const OptimizerDef kAdafactor;
extern const OptimizerDef kAdamw;
extern const OptimizerDef kAdamw8;
extern const OptimizerDef kLion;
extern const OptimizerDef kMuon;
extern const OptimizerDef kSgd;

namespace {
constexpr const OptimizerDef* kOptimizers[] = {&kAdafactor, &kAdamw, &kAdamw8, &kLion, &kMuon, &kSgd};
}  // namespace

std::span<const OptimizerDef* const> all_optimizers() { return kOptimizers; }

const OptimizerDef* find_optimizer(std::string_view name) {
  const auto at = std::ranges::find(kOptimizers, name, [](const OptimizerDef* it) { return it->name; });
  return at == std::end(kOptimizers) ? nullptr : *at;
}

const OptimizerSetting* find_setting(const OptimizerDef& optimizer, std::string_view name) {
  const auto at = std::ranges::find(optimizer.settings, name, &OptimizerSetting::name);
  return at == optimizer.settings.end() ? nullptr : &*at;
}

std::map<std::string, double> defaults_of(const OptimizerDef& optimizer) {
  std::map<std::string, double> values;
  for (const OptimizerSetting& it : optimizer.settings) values.emplace(it.name, it.default_value);
  return values;
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
  const OpDef* def = find_op(op);
  if (def == nullptr) return Status(StatusCode::kInternal, format("no op is named {}", op));
  for (const auto& [name, value] : hyper) {
    const auto spec = std::ranges::find(def->attrs, name, &AttrSpec::name);
    if (spec == def->attrs.end()) continue;
    attrs.push_back(
        {name, spec->type == AttrType::kI64 ? AttrValue(static_cast<int64_t>(value)) : AttrValue(value)});
  }
  for (const AttrSpec& spec : def->attrs)
    if (const auto at = std::ranges::find(context.settings, spec.name, &StepSetting::name);
        at != context.settings.end())
      inputs.push_back(at->value);

  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results, graph.add_node(op, inputs, std::move(attrs)));
  if (results.size() != targets.size())
    return Status(StatusCode::kInternal,
                  format("{} makes {} results for {} targets", op, results.size(), targets.size()));
  for (size_t i = 0; i < targets.size(); ++i)
    TSR_RETURN_IF_ERROR(add_named_update(graph, targets[i], results[i]));
  return {};
}

}  // namespace tessera
