// EntryLayout: the rank-independent part of lowering one entry point.
#pragma once

#include <memory>
#include <vector>

#include "graph/phases.h"
#include "parallel/lowering/lower.h"
#include "parallel/sharding/batch_cut.h"
#include "parallel/sharding/graph_dims.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/reshard.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

struct EntryLayout {
  std::string name;
  Graph graph;  // symbols bound; B: one micro-batch over all ranks
  const Plan* plan = nullptr;
  std::shared_ptr<const ExpandedPhases> expanded;  // owns `plan` if nodes were expanded into phases
  DeviceMesh mesh;                                 // of the first stage; all others have equal axes
  // Device sets with their pipeline stages; a single one without a pipeline.
  std::vector<DeviceMesh> places;
  std::vector<int32_t> place_of_stage;
  std::vector<int32_t> place;                 // by node
  std::vector<std::vector<int32_t>> lies_on;  // by tensor: its places, first the owner's or producer's
  std::shared_ptr<Resharder> resharder;
  int32_t micro_batches = 1;
  std::vector<NodeSharding> nodes;
  std::vector<std::vector<Task>> tasks;  // by place

  // By tensor. `batch_dim`: the dim whose extent is symbol B, or -1. `spec`: the initial
  // layout: stored for inputs, parameters, constants and state; as produced for activations.
  std::vector<int> batch_dim;
  std::vector<ShardingSpec> spec;
  // Values passed to update nodes, updates or batchless outputs from other phases: over
  // several micro-batches they are summed, in layout `accumulate` (a gradient's stored spec;
  // else as produced). A value equal in all micro-batches is not summed; the first is taken.
  std::vector<bool> accumulated;
  std::vector<ShardingSpec> accumulate;
  std::vector<BatchPart> parts;       // of several micro-batches; else empty
  std::vector<Tier> tier;             // of stored tensors; of activations: tier of the micro-batches' sum
  std::vector<bool> recompute;        // activations recomputed for backward
  std::vector<bool> keep_gathered;    // tensors gathered for forward that also serve backward
  std::vector<Tier> offload;          // tier where an activation waits for backward; kDevice: not offloaded
  std::vector<ShardingSpec> outputs;  // by output: layout when fetched; never partial
  std::vector<std::vector<bool>> batch_factors;  // by node and factor: its extent is B
  // By node: a parameter's narrow copy that is kept from forward to backward
  // anyway, or as a shard. It is equal in all micro-batches, so it is made
  // once, first, and its gathers can be issued ahead of their readers.
  std::vector<bool> once;
  // By tensor: itself, or an equal copy of the same parameter
  // made once at the same place, which replaces it.
  std::vector<TensorId> canonical_copy;

  const Tensor& tensor(TensorId id) const { return graph.tensor(id); }
  bool lies_at(TensorId id, int32_t where) const;
  bool is_persistent(TensorId id) const { return tensor(id).kind != TensorKind::kActivation; }
  // The type over all micro-batches.
  TensorType whole_type(TensorId id) const;
  const NodePlan& nodes_plan(NodeId id) const;  // the default if the plan lists no nodes

  // Zigzag order applies to sequences only; other dims on the axis are in plain
  // order. The first axis of a sequence decides; further axes split its parts.
  SequenceDims sequences;  // for plans with a zigzag axis; else empty
  bool is_zigzag_axis(AxisId axis) const;
  bool is_zigzag(TensorId id, size_t dim, const DimSharding& split) const;
  bool is_zigzag(NodeId id, size_t factor, const DimSharding& split) const;
  // Converts a view's range, in shard order, to the tokens it contains.
  void zigzag_view(const DimSharding& split, FactorView& view) const;
};

Result<EntryLayout> make_layout(const EntrySpec& entry);

}  // namespace tessera
