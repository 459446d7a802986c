#include "graph/optim/parameter_groups.h"

#include <algorithm>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"

namespace tessera {

const ParameterGroup* find_group(std::span<const ParameterGroup> groups, std::string_view name) {
  const auto at = std::ranges::find_if(
      groups, [&](const ParameterGroup& group) { return matches_wildcard(group.match, name); });
  return at == groups.end() ? nullptr : &*at;
}

Status check_matches(std::string_view option, std::string_view pattern, const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (graph.tensor(id).trainable) names.push_back(graph.tensor(id).name);
  if (std::ranges::any_of(names, [&](const auto& name) { return matches_wildcard(pattern, name); }))
    return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: '{}' matches no parameter that trains{}", option, pattern,
                       nearest_hint(pattern, names)));
}

// Biases of experts are matrices, a row for each expert.
bool decays_by_default(const Tensor& parameter) {
  return parameter.type.shape.rank() > 1 && !parameter.name.ends_with("bias");
}

}  // namespace tessera
