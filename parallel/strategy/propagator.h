// Propagator: state of one walk over a graph that assigns
// mesh axes to factors; the rules are in propagation.h.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/plan.h"
#include "parallel/sharding/graph_dims.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/parameter_copies.h"
#include "parallel/sharding/units.h"
#include "parallel/strategy/propagation.h"
#include "parallel/strategy/strategy_axes.h"

namespace tessera {

class Propagator {
 public:
  // `graph`: `symbolic` bound to one micro-batch over all ranks.
  Propagator(const Graph& symbolic, Graph graph, const PropagationOptions& options, int32_t micro_batches);

  Result<Plan> run();

 private:
  // --- propagator.cc: the walk ---
  int64_t parts_of_features() const;
  Status check_sizes();
  void start_tensors();
  void mark_gradients();
  void mark_tables();
  void mark_copies();
  void place_copies(NodeId reader);
  Status visit(NodeId id);
  void carry_sums(NodeId id, NodePlan& plan) const;
  bool others_are_scalars(NodeId id, const std::vector<int>& set) const;
  void take_inputs(NodeId id, const NodePlan& plan, const NodeSharding& sharding);

  // --- propagator_factors.cc: the factor that an axis goes to ---
  void assign_sequence(NodeId id, NodePlan& plan) const;
  void assign_beside_sequence(NodeId id, NodePlan& plan) const;
  const Factor* factor_instead_of_sequence(NodeId id, const NodePlan& plan) const;
  Status assign_meeting(NodeId id, NodePlan& plan);
  Status assign_experts(NodeId id, NodePlan& plan) const;
  void assign_wide(NodeId id, NodePlan& plan) const;
  Status assign_features(NodeId id, NodePlan& plan, AxisId axis);
  Status assign_swapping_features(NodeId id, NodePlan& plan);
  void assign_batch(NodeId id, NodePlan& plan) const;
  void assign_update(NodeId id, NodePlan& plan);

  // Weight: a parameter of two or more dims that the node contracts (or looks up in).
  struct Weight {
    size_t input = 0;
    const Factor* contracted = nullptr;
    const Factor* brought = nullptr;  // into the result
    const Factor* common = nullptr;   // in all operands: experts
    bool looked_up = false;           // contracted with indices
    bool placed = false;              // an earlier node has determined its split
  };
  std::optional<Weight> weight_of(NodeId id) const;
  Result<const Factor*> factor_of_weight(NodeId id, const NodePlan& plan, const Weight& weight,
                                         AxisId axis) const;
  Status does_not_fit(NodeId id, TensorId weight, const Factor& factor, AxisId axis) const;
  bool is_cut_between_blocks(NodeId id, const Weight& weight, AxisId axis) const;
  const Factor* arriving(NodeId id, const NodePlan& plan, AxisId axis, int64_t& elements) const;
  const Factor* factor_along(NodeId id, const ShardingSpec& spec, const ShardingRule::OperandDims& dims,
                             AxisId axis) const;
  const Factor* batch_factor(NodeId id) const;
  const Factor* sequence_factor(NodeId id) const;  // for results [B, T, ...]
  int64_t carried_elements(NodeId id, AxisId axis) const;
  bool is_wide(NodeId id, const Weight& weight) const;
  std::vector<AxisId> batch_axes() const { return batch_whole_ ? std::vector<AxisId>{} : axes_.batch; }

  // --- propagator_owners.cc: whole matrices, each owned by one rank ---
  void mark_owners();
  std::vector<AxisId> owner_axes() const;
  bool assign_owner(NodeId id, NodePlan& plan);
  // `base` with the parameter's owner, if any.
  std::optional<ShardingSpec> owned(TensorId parameter, const ShardingSpec& base) const;

  // --- propagator_storage.cc: stored layouts ---
  const ShardingSpec& compute_spec(TensorId parameter) const { return now_[index(parameter)]; }
  const ShardingSpec& parameter_spec(TensorId parameter);  // stored layout below zero 3
  const ShardingSpec& state_spec(TensorId parameter);
  const ShardingSpec* spec_of_stored_gradient(TensorId parameter) const;
  void store();
  void store_state(NodeId id, std::map<TensorId, ShardingSpec>& stored) const;
  ShardingSpec produced(TensorId id) const;

  // --- helpers ---
  const DeviceMesh& mesh() const { return plan_.stages[0].mesh; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  const ShardingRule& rule(NodeId id) const { return units_.rules[index(id)]; }
  int64_t unit(NodeId id, const Factor& factor) const {
    return units_.factors[index(id)][static_cast<size_t>(&factor - rule(id).factors.data())];
  }
  int64_t parts(const std::vector<AxisId>& axes) const;
  // Whether the factor can be split over another axis; `set` does it.
  bool admits(NodeId id, const NodePlan& plan, const Factor& factor, AxisId axis) const;
  void set(NodeId id, NodePlan& plan, const Factor& factor, const std::vector<AxisId>& axes,
           int64_t unit_of = 0) const;
  void set_split(NodeId id, NodePlan& plan, const Factor& factor, const DimSharding& dim) const;
  static bool uses(const NodePlan& plan, AxisId axis);
  static const std::vector<AxisId>* axes_of(const NodePlan& plan, char factor);

  const Graph& symbolic_;
  const Graph graph_;
  const PropagationOptions& options_;
  Plan plan_;
  StrategyAxes axes_;
  Units units_;
  GraphDims dims_;
  bool batch_whole_ = false, sequence_whole_ = false;
  bool gathers_sequence_ = false;  // some node needs a whole sequence, so its order must be plain
  std::vector<ShardingSpec> now_;  // by tensor: its present layout for readers
  std::vector<AxisId> gathered_;   // axes over which the present node's result is gathered for readers
  std::vector<bool> placed_;       // parameters and state whose layout a node has determined
  std::vector<TensorId> gradient_of_;  // by tensor
  std::vector<bool> also_projects_;    // by tensor: a table whose rows are columns of a matmul elsewhere
  // By tensor: the parameter that it is or copies
  // in another type (mixed precision); else itself.
  std::vector<TensorId> copied_;
  std::vector<ParameterCopy> copies_;
  std::vector<bool> measures_;       // by node: measures a parameter for a copy, in its layout
  std::vector<int> contracted_dim_;  // by tensor: a weight's dim contracted by its first node; or -1
  std::map<TensorId, ShardingSpec> parameter_specs_, state_specs_;
  std::map<TensorId, int32_t>
      owners_;  // by parameter whose update needs the whole: its owner over owner_axes()
  std::map<NodeId, TensorId> owned_by_;  // by update node run by an owner: the parameter
};

}  // namespace tessera
