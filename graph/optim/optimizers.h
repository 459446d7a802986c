// Functions and settings shared by the files of optimizers.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/optim/optimizer.h"

namespace tessera {

constexpr double kMostDecay = 1e6;

constexpr double kMostBeta =
    0.9999999999999999;  // the largest number below 1, which would be a mean of nothing

// AdamW's settings, for optimizers that leave some parameters to AdamW.
inline constexpr OptimizerSetting kAdamwSettings[] = {{"beta1", 0.9, 0, kMostBeta},
                                                      {"beta2", 0.999, 0, kMostBeta},
                                                      {"eps", 1e-8},
                                                      {"weight_decay", 0.01, 0, kMostDecay}};
Status emit_adamw(const OptimizerContext& context, const std::map<std::string, double>& hyper);

// Adds state "<parameter>.<slot>": the parameter's shape, in f32 (f64 for an f64 parameter) whatever its dtype.
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot);
// The same with another shape, and with any type.
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const Shape& shape);
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const TensorType& type);

// Stores `value` in `target` at the end of the step, and names it "<target>.new".
Status add_named_update(Graph& graph, TensorId target, TensorId value);

// Emits op(parameter, gradient, state..., scalars..., gradient scale if clipping, settings of the step) -> new parameter,
// new state..., and the updates that store them. Settings become attributes of the op, and those of the step operands in
// the attributes' order; it ignores those that it lacks.
Status emit_update(const OptimizerContext& context, std::string_view op, std::span<const TensorId> state,
                   std::span<const TensorId> scalars, const std::map<std::string, double>& hyper);

}  // namespace tessera
