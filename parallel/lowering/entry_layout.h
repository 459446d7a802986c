// EntryLayout: everything about lowering one entry point that is the same on every rank.
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
  Graph graph;  // symbols bound; B to one micro-batch over all ranks
  const Plan* plan = nullptr;
  std::shared_ptr<const ExpandedPhases> expanded;  // holds `plan` where nodes were taken apart into phases
  DeviceMesh mesh;                                 // of the first stage; all others have the same axes
  // Sets of devices, each with the pipeline stages that lie on it; one without a pipeline.
  std::vector<DeviceMesh> places;
  std::vector<int32_t> place_of_stage;
  std::vector<int32_t> place;                 // by node
  std::vector<std::vector<int32_t>> lies_on;  // by tensor: places; the owner's, or where it is made, first
  std::shared_ptr<Resharder> resharder;
  int32_t micro_batches = 1;
  std::vector<NodeSharding> nodes;
  std::vector<std::vector<Task>> tasks;  // by place

  // By tensor. `batch_dim`: the dim whose extent is symbol B, or -1. `spec`: where the value first lies:
  // stored for inputs, parameters, constants and state; as produced for activations.
  std::vector<int> batch_dim;
  std::vector<ShardingSpec> spec;
  // Values that update nodes, updates or outputs without a batch take from the other phases: with several
  // micro-batches they are summed, lying as `accumulate` says (a gradient's stored spec; else as produced).
  // (One that no micro-batch has a part of is not summed: the first is taken.)
  std::vector<bool> accumulated;
  std::vector<ShardingSpec> accumulate;
  std::vector<BatchPart> parts;       // of several micro-batches; else empty
  std::vector<Tier> tier;             // of what is stored; of an activation: where micro-batches are summed
  std::vector<bool> recompute;        // activations made again for backward
  std::vector<bool> keep_gathered;    // what is gathered for forward serves backward too
  std::vector<Tier> offload;          // where an activation waits for backward; kDevice: it stays
  std::vector<ShardingSpec> outputs;  // by output: where it lies when fetched; never partial
  std::vector<std::vector<bool>> batch_factors;  // by node and factor: its extent is B
  // By node: a parameter's narrow copy that is held from forward to backward anyway, or as a shard. It is the
  // same in all micro-batches: made once, before everything else, so that its gathers can be issued ahead of
  // their readers.
  std::vector<bool> once;
  // By tensor: itself, or the equal copy of the same parameter that is made once at the same place and read
  // in its stead.
  std::vector<TensorId> canonical_copy;

  const Tensor& tensor(TensorId id) const { return graph.tensor(id); }
  bool lies_at(TensorId id, int32_t where) const;
  bool is_persistent(TensorId id) const { return tensor(id).kind != TensorKind::kActivation; }
  // The type over all micro-batches.
  TensorType whole_type(TensorId id) const;
  const NodePlan& nodes_plan(NodeId id) const;  // the default one where the plan lists no nodes

  // Zig-zag order: of sequences alone; whatever else lies on the axis is in order. The axis that a sequence
  // lies on first decides, further axes cut what it leaves.
  SequenceDims sequences;  // of plans with a zig-zag axis; else empty
  bool is_zigzag_axis(AxisId axis) const;
  bool is_zigzag(TensorId id, size_t dim, const DimSharding& split) const;
  bool is_zigzag(NodeId id, size_t factor, const DimSharding& split) const;
  // Turns the range of a view, in the order of the shards, into the tokens that it stands for.
  void zigzag_view(const DimSharding& split, FactorView& view) const;
};

Result<EntryLayout> make_layout(const EntrySpec& entry);

}  // namespace tessera
