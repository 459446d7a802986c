// EntryEmitter: writes the instructions of one entry point on one rank.
//
//   entry_emitter.cc   the tasks in order: kernels, sums over micro-batches, outputs, updates
//   entry_slots.cc     slots that exist before a run: parameters, state, inputs, outputs
//   entry_values.cc    layouts of a value and its conversion to the requested one: reshards, tiers,
//   recomputation
//   entry_messages.cc  messages between pipeline stages
//   chunked_node.cc    nodes that run in slices; rotating_node.cc: slices that go around the ranks
//
// Kept conversions. A value has the layout of its producer, and further ones requested by
// consumers. The result of a reduction is kept for all later consumers (addends are reduced once),
// as is an exchanged value (it is no larger than its source). Every other conversion (gathered
// parameters, gathered activations) is kept among nodes of one phase (forward, backward, update)
// of one micro-batch and repeated in the next: rows marked "re" in the sharding algebra.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "parallel/lowering/entry_layout.h"
#include "parallel/lowering/rank_builder.h"

namespace tessera {

// SharedSlot: a slot that outlives a run, shared between entries by tensor name.
struct SharedSlot {
  TensorType type;
  ShardingSpec spec;
  TensorKind kind = TensorKind::kParameter;
  SlotRef at;
  bool zigzag = false;  // one of its sequence dims is in zigzag order
};
using SharedSlots = std::map<std::string, SharedSlot>;

class EntryEmitter {
 public:
  // `place`: of this rank, which runs its tasks. Micro-batches may be interleaved.
  EntryEmitter(const EntryLayout& layout, int32_t place, RankBuilder& builder, SharedSlots& shared,
               int32_t entry)
      : layout_(layout),
        place_(place),
        tasks_(layout.tasks[static_cast<size_t>(place)]),
        builder_(builder),
        shared_(shared),
        entry_(entry) {}

  // Fails if the catalog declines, or if a tensor shared with an earlier entry differs in type or placement.
  Result<EntryPoint> emit();

 private:
  enum class EmitPhase : uint8_t { kForward, kBackward, kUpdate };
  struct Copy {
    ShardingSpec spec;
    SlotRef at;
    EmitPhase phase = EmitPhase::kForward;  // phase of the consumer it was made for
    bool kept = false;        // valid in every phase
  };
  static EmitPhase emit_phase_of(const Node& node);

  // entry_slots.cc
  Status add_persistent_slots();
  Status add_shared_slot(TensorId id);
  void add_output_slots();
  std::vector<Piece> pieces(TensorId tensor, const ShardingSpec& spec, SlotRef at) const;
  int64_t local_bytes(TensorId tensor, const ShardingSpec& spec) const;

  // entry_emitter.cc
  void find_last_reads();
  std::span<const size_t> updates_with(TensorId value) const;
  void enter_micro_batch(int32_t micro_batch);
  Status emit_once();
  Status emit_task(size_t task);
  // `task` is kNoTask if the node is recomputed for backward.
  static constexpr size_t kNoTask = static_cast<size_t>(-1);
  Status emit_node(NodeId id, EmitPhase phase, size_t task);
  Status emit_kernel(NodeId id, EmitPhase phase, size_t task, std::vector<SlotRef> inputs);
  SlotRef output_slot(NodeId id, size_t output, size_t task);
  // Adds a copy of a value for this micro-batch, or for all if it is kept and equal in all.
  void add_copy(TensorId tensor, Copy copy);
  std::vector<FactorView> views_of(NodeId id) const;
  // Emits the kernel of `id` on these operand types.
  Status launch(NodeId id, std::vector<TensorType> in_types, std::vector<TensorType> out_types,
                std::vector<FactorView> views, std::vector<SlotRef> inputs, std::vector<SlotRef> outputs);
  // Emits an op on whole local operands, for sums and merges; results are in new slots.
  Result<std::vector<SlotRef>> launch_local(std::string_view op, const std::vector<TensorType>& in_types,
                                            const std::vector<TensorType>& out_types,
                                            std::vector<SlotRef> inputs, NodeId node, std::string_view name,
                                            Tier tier);
  Status accumulate(NodeId id);
  Status fill_outputs(TensorId tensor, EmitPhase phase, NodeId node);
  // Commits the possible updates: their value is made, and nothing reads the old one after `task`.
  Status commit_updates(size_t task);
  Status commit_update(size_t update);
  Status copy_persistent_outputs();
  Tier tier_of(NodeId id) const;

  // entry_values.cc
  // Returns the value of `tensor` in layout `want` and `tier`; in `destination` if given.
  Result<SlotRef> materialize(TensorId tensor, const ShardingSpec& want, EmitPhase phase, NodeId node,
                              Tier tier = Tier::kDevice, const SlotRef* destination = nullptr);
  // Likewise for a slice of it, for one reader.
  Result<SlotRef> materialize_slice(TensorId tensor, const ShardingSpec& want, const DimWindow& window, EmitPhase phase,
                                    NodeId node);
  struct ReshardRoute {
    size_t copy = 0;  // index of the source copy
    ReshardPath path;
  };
  Result<ReshardRoute> route(TensorId tensor, const ShardingSpec& want, EmitPhase phase, NodeId node, Tier tier);
  Status check_path(TensorId tensor, const ReshardPath& path) const;
  bool usable(TensorId tensor, const Copy& copy, EmitPhase phase) const;
  std::vector<Copy>& copies_of(TensorId tensor, EmitPhase phase);
  void copy_bytes(SlotRef in, SlotRef out, int64_t bytes, NodeId node);
  // Copies a window of dim `cut.dim` between local tensors of `in_type` and `out_type`,
  // which differ only in that dim: `count` elements from `in_at` to `out_at`.
  void copy_window(const TensorType& in_type, SlotRef in, int64_t in_at, const TensorType& out_type,
                   SlotRef out, int64_t out_at, int dim, int64_t count, NodeId node);
  Tier tier_at(SlotRef at) const { return builder_.program.slots[static_cast<size_t>(at.slot)].tier; }
  Status offload(NodeId id, EmitPhase phase);

  // entry_messages.cc
  Status send(const Task& task);
  Status receive(const Task& task, size_t at);
  int32_t peer_rank(const Task& task) const;

  // chunked_node.cc, rotating_node.cc
  Status emit_chunks(NodeId id, EmitPhase phase);
  Status emit_rotating(NodeId id, EmitPhase phase);
  class ChunkedNode;

  using Values = std::vector<std::vector<Copy>>;  // by tensor
  Values& values() { return live_.at(micro_batch_); }

  const EntryLayout& layout_;
  const int32_t place_;
  std::span<const Task> tasks_;
  RankBuilder& builder_;
  SharedSlots& shared_;
  int32_t entry_;
  EntryPoint out_;
  int32_t micro_batch_ = 0;
  std::map<int32_t, Values> live_;                // by micro-batch
  std::map<TensorId, std::vector<Copy>> totals_;  // sums over micro-batches, for the update phase and outputs
  std::map<TensorId, std::vector<Copy>> lasting_;  // equal in every micro-batch, kept
  std::map<TensorId, SlotRef> persistent_;
  std::vector<SlotRef> output_slots_;  // by output
  std::vector<bool> output_written_;
  std::vector<size_t> last_read_;  // by update: the last task that reads the old value
  std::vector<bool> committed_;    // by update
  std::map<TensorId, std::vector<size_t>> updates_with_;  // by value
  std::vector<std::vector<size_t>> last_read_at_;         // by task: updates of tensors that it reads last
  std::set<size_t> ready_;                                // updates that may have become possible
};

}  // namespace tessera
