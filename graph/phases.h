// Phases: an op that normalises over a factor, split into local statistics, their sum, and
// a finish, so that the factor may be sharded (ALGEBRA rule 8). `OpDef::phases` emits the
// chain; `expand_phases` replaces every node whose plan splits a factor of kind kPhased.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"

namespace tessera {

// PhaseBuilder: an op's view in its `phases`: the node, and functions that emit its replacements.
// Factors of the emitted ops have the names of the op's own rule; the node's plan applies to them.
class PhaseBuilder {
 public:
  PhaseBuilder(Graph& graph, const Node& node, std::vector<TensorId> inputs)
      : graph_(graph), node_(node), inputs_(std::move(inputs)) {}

  TensorId input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  std::span<const Attr> attrs() const { return node_.attrs; }

  Result<TensorId> emit(std::string_view op, std::initializer_list<TensorId> inputs,
                        std::vector<Attr> attrs = {});
  Result<std::vector<TensorId>> emit_all(std::string_view op, std::initializer_list<TensorId> inputs,
                                         std::vector<Attr> attrs = {});

  // Sets the replacements of the node's results, in order.
  void set_outputs(std::vector<TensorId> outputs) { outputs_ = std::move(outputs); }
  const std::vector<TensorId>& outputs() const { return outputs_; }

 private:
  Graph& graph_;
  const Node& node_;
  std::vector<TensorId> inputs_, outputs_;
};

struct ExpandedPhases {
  Graph graph;
  Plan plan;
};

// Returns nullopt when no node needs it. `graph` may hold symbols. The fingerprint changes.
Result<std::optional<ExpandedPhases>> expand_phases(const Graph& graph, const Plan& plan);

}  // namespace tessera
