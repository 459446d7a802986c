// Optimizers as graph nodes. State tensors are ordinary tensors with sharding specs, so ZeRO is a planner decision,
// not an optimizer feature. One optimizer, one file, one line in the table of optimizer.cc.
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
  std::map<std::string, double> hyper;  // overrides of the row's defaults
  std::vector<ParameterGroup> groups;   // the first that matches a parameter counts
  double lora_plus_ratio = 1;           // factor on the rate of "*.lora_b", in addition to its group's
};

// OptimizerContext: the tensors of one parameter's update in the graph.
struct OptimizerContext {
  Graph& graph;
  TensorId parameter, gradient;
  TensorId lr, step;        // f32 scalars
  TensorId gradient_scale;  // f32 scalar from clipping; kNoTensor when not clipping
};

struct OptimizerDef {
  std::string_view name;
  std::map<std::string, double> (*defaults)();
  Status (*emit)(const OptimizerContext& context, const std::map<std::string, double>& hyper);
};

const OptimizerDef* find_optimizer(std::string_view name);
std::span<const OptimizerDef> all_optimizers();

}  // namespace tessera
