// Groups of parameters with a learning rate and a weight decay of their own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// ParameterGroup: the parameters whose names match a pattern; "*" matches any characters.
struct ParameterGroup {
  std::string match;
  double lr_factor = 1;                // factor on the schedule's rate
  std::optional<double> weight_decay;  // nullopt: the default of the parameter
};

// Returns the first group that matches `name`; null when none does.
const ParameterGroup* find_group(std::span<const ParameterGroup> groups, std::string_view name);

// kInvalidArgument for a pattern that matches none of the graph's trained parameters, with names near it.
Status check_matches(std::string_view option, std::string_view pattern, const Graph& graph);

// Returns whether weights of this parameter decay by default: matrices, not norms and biases.
bool decays_by_default(const Tensor& parameter);

}  // namespace tessera
