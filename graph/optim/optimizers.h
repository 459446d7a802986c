// Emitters behind the table of optimizers (one declaration pair and one row each), and their shared helpers.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/optim/optimizer.h"

namespace tessera {

std::map<std::string, double> adamw_defaults();
Status emit_adamw(const OptimizerContext& context, const std::map<std::string, double>& hyper);
std::map<std::string, double> sgd_defaults();
Status emit_sgd(const OptimizerContext& context, const std::map<std::string, double>& hyper);

std::map<std::string, double> adafactor_defaults();
Status emit_adafactor(const OptimizerContext& context, const std::map<std::string, double>& hyper);
std::map<std::string, double> adamw8_defaults();
Status emit_adamw8(const OptimizerContext& context, const std::map<std::string, double>& hyper);
std::map<std::string, double> muon_defaults();
Status emit_muon(const OptimizerContext& context, const std::map<std::string, double>& hyper);
std::map<std::string, double> lion_defaults();
Status emit_lion(const OptimizerContext& context, const std::map<std::string, double>& hyper);

// State "<parameter>.<slot>": the parameter's shape, in f32 (f64 for an f64 parameter) whatever its dtype.
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot);
// The same in that type with another shape, and of any type.
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const Shape& shape);
Result<TensorId> add_optimizer_state(const OptimizerContext& context, std::string_view slot,
                                     const TensorType& type);

// Stores `value` in `target` at the end of the step, and names it "<target>.new".
Status add_named_update(Graph& graph, TensorId target, TensorId value);

// Emits op(parameter, gradient, state..., scalars..., gradient scale if clipping) -> new parameter, new
// state..., and the updates that store them. Every hyper-parameter is an attribute of the op.
Status emit_update(const OptimizerContext& context, std::string_view op, std::span<const TensorId> state,
                   std::span<const TensorId> scalars, const std::map<std::string, double>& hyper);

}  // namespace tessera
