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

// ParameterGroup: the parameters whose names match a pattern, in which "*" stands for any characters.
struct ParameterGroup {
  std::string match;
  double lr_factor = 1;                // on the rate of the schedule
  std::optional<double> weight_decay;  // none: as for parameters without a group
};

// The first group that describes `name`; null when none does.
const ParameterGroup* find_group(std::span<const ParameterGroup> groups, std::string_view name);

// kInvalidArgument for a pattern that matches none of the graph's trained parameters, with names near it.
Status check_matches(std::string_view option, std::string_view pattern, const Graph& graph);

// Whether weights of this parameter decay without a group that says so: matrices, not norms and biases.
bool decays_by_default(const Tensor& parameter);

}  // namespace tessera
