// Optimizers as graph nodes. State tensors are ordinary tensors with sharding specs, so ZeRO is a planner decision,
// not an optimizer feature. One optimizer, one file, one row in the table of optimizer.cc: options, their ranges and
// refusals, state, its bytes, its place and its checkpoints follow from it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/optim/parameter_groups.h"

namespace tessera {

struct OptimizerOptions {
  std::string name = "adamw";           // a row of the table in optimizer.cc
  std::map<std::string, double> hyper;  // overrides of the row's defaults, by the settings' names
  std::vector<ParameterGroup> groups;   // the first that matches a parameter applies
  double lora_plus_ratio = 1;           // factor on the rate of "*.lora_b", in addition to its group's
};

// StepSetting: a setting whose value is an input of each step, f64 [].
struct StepSetting {
  std::string_view name;
  TensorId value;
};

// OptimizerContext: the tensors of one parameter's update in the graph.
struct OptimizerContext {
  Graph& graph;
  TensorId parameter, gradient;
  TensorId lr, step;                           // f32 scalars
  TensorId gradient_scale;                     // f32 scalar from clipping; kNoTensor when not clipping
  std::span<const StepSetting> settings = {};  // empty: the hyper-parameters are those of every step
};

// OptimizerSetting: a number that a caller may set by the option of this name.
struct OptimizerSetting {
  std::string_view name;
  double default_value = 0;
  double low = 0, high = 1;  // both are allowed
  // Names in place of numbers: name i stands for i; name 0 is the default.
  std::span<const std::string_view> words = {};
};

struct OptimizerDef {
  std::string_view name;  // the word of option "optimizer"; stored in checkpoints: never renamed
  std::span<const OptimizerSetting> settings;
  // Emits the nodes of one parameter's update: state by add_optimizer_state, new values by emit_update or
  // add_named_update. `hyper` has all settings, "lr_scale" for a parameter with a rate of its own, and "fixed_decay" for one
  // whose decay is not the step's.
  Status (*emit)(const OptimizerContext& context, const std::map<std::string, double>& hyper);
  // Its names in other projects, for messages about unknown names.
  std::span<const std::string_view> foreign_names = {};
  // Updates need whole matrices, each of which has an owner among the ranks (parallel/strategy/propagator_owners.cc).
  // Devices then hold unequal shares, which plans for absent hardware do not price.
  bool has_owners = false;
  bool has_step_settings = false;  // its updates take settings of one step (emit_update)
};

const OptimizerDef* find_optimizer(std::string_view name);  // null when unknown
std::span<const OptimizerDef* const> all_optimizers();      // sorted by name
const OptimizerSetting* find_setting(const OptimizerDef& optimizer, std::string_view name);
std::map<std::string, double> defaults_of(const OptimizerDef& optimizer);

}  // namespace tessera
