// EntryEmitter: writes the instructions of one entry point on one rank.
//
//   entry_emitter.cc   the tasks in order: kernels, sums over micro-batches, outputs, updates
//   entry_slots.cc     what is there before a run: parameters, state, inputs, outputs
//   entry_values.cc    where a value lies and how it gets to where it is wanted: conversions, tiers,
//   recomputation
//   entry_messages.cc  what goes between pipeline stages
//   chunked_node.cc    nodes that run in slices; rotating_node.cc: slices that go around the ranks
//
// Which conversions are kept. A value lies in one layout as produced, and in others as consumers asked. What
// a reduction of addends yields is kept for all later consumers (the addends are not reduced twice), and what
// was exchanged, too (it is no larger than what it came from). Every other conversion (gathered parameters,
// gathered activations) is kept among nodes of one phase (forward, backward, update) of one micro-batch and
// made again in the next: rows marked "re" in the sharding algebra.
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

// Slots that outlive a run, by tensor name: shared between entries.
struct SharedSlot {
  TensorType type;
  ShardingSpec spec;
  TensorKind kind = TensorKind::kParameter;
  SlotRef at;
  bool zigzag = false;  // a sequence of it lies so
};
using SharedSlots = std::map<std::string, SharedSlot>;

class EntryEmitter {
 public:
  // `place`: of this rank, whose tasks it carries out. Micro-batches may be interleaved.
  EntryEmitter(const EntryLayout& layout, int32_t place, RankBuilder& builder, SharedSlots& shared,
               int32_t entry)
      : layout_(layout),
        place_(place),
        tasks_(layout.tasks[static_cast<size_t>(place)]),
        builder_(builder),
        shared_(shared),
        entry_(entry) {}

  // Fails as a catalog declines, or when a tensor shared with an earlier entry differs in type or placement.
  Result<EntryPoint> emit();

 private:
  enum class EmitPhase : uint8_t { kForward, kBackward, kUpdate };
  struct Copy {
    ShardingSpec spec;
    SlotRef at;
    EmitPhase phase = EmitPhase::kForward;  // of the consumer it was made for
    bool kept = false;        // whatever the phase
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
  // `task` is kNoTask where the node is computed again for the backward pass.
  static constexpr size_t kNoTask = static_cast<size_t>(-1);
  Status emit_node(NodeId id, EmitPhase phase, size_t task);
  Status emit_kernel(NodeId id, EmitPhase phase, size_t task, std::vector<SlotRef> inputs);
  SlotRef output_slot(NodeId id, size_t output, size_t task);
  // One more copy of a value of this micro-batch; of all, where it is kept and the same in all.
  void add_copy(TensorId tensor, Copy copy);
  std::vector<FactorView> views_of(NodeId id) const;
  // The kernel of `id` on the operand types given.
  Status launch(NodeId id, std::vector<TensorType> in_types, std::vector<TensorType> out_types,
                std::vector<FactorView> views, std::vector<SlotRef> inputs, std::vector<SlotRef> outputs);
  // An op on whole local operands, for sums and merges; results in new slots.
  Result<std::vector<SlotRef>> launch_local(std::string_view op, const std::vector<TensorType>& in_types,
                                            const std::vector<TensorType>& out_types,
                                            std::vector<SlotRef> inputs, NodeId node, std::string_view name,
                                            Tier tier);
  Status accumulate(NodeId id);
  Status fill_outputs(TensorId tensor, EmitPhase phase, NodeId node);
  // Those that can be: their value is made, and nothing reads the old one after `task`.
  Status commit_updates(size_t task);
  Status commit_update(size_t update);
  Status copy_persistent_outputs();
  Tier tier_of(NodeId id) const;

  // entry_values.cc
  // The value of `tensor` lying as `want` in `tier`; into `destination` when given.
  Result<SlotRef> materialize(TensorId tensor, const ShardingSpec& want, EmitPhase phase, NodeId node,
                              Tier tier = Tier::kDevice, const SlotRef* destination = nullptr);
  // A slice of it, made for one reader.
  Result<SlotRef> materialize_slice(TensorId tensor, const ShardingSpec& want, const Cut& cut, EmitPhase phase,
                                    NodeId node);
  struct ReshardRoute {
    size_t copy = 0;  // index of the copy to start from
    ReshardPath path;
  };
  Result<ReshardRoute> route(TensorId tensor, const ShardingSpec& want, EmitPhase phase, NodeId node, Tier tier);
  Status check_path(TensorId tensor, const ReshardPath& path) const;
  bool usable(TensorId tensor, const Copy& copy, EmitPhase phase) const;
  std::vector<Copy>& copies_of(TensorId tensor, EmitPhase phase);
  void copy_bytes(SlotRef in, SlotRef out, int64_t bytes, NodeId node);
  // Box copy of a window of dim `cut.dim` between local tensors of types `in_type` and `out_type`, which
  // differ in that dim alone: `count` elements from `in_at` to `out_at`.
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
  std::map<TensorId, std::vector<Copy>> lasting_;  // what every micro-batch finds, kept
  std::map<TensorId, SlotRef> persistent_;
  std::vector<SlotRef> output_slots_;  // by output
  std::vector<bool> output_written_;
  std::vector<size_t> last_read_;  // by update: task after which nothing reads the old value
  std::vector<bool> committed_;    // by update
  std::map<TensorId, std::vector<size_t>> updates_with_;  // by value
  std::vector<std::vector<size_t>> last_read_at_;         // by task: updates of what it reads last
  std::set<size_t> ready_;                                // updates that may have become possible
};

}  // namespace tessera
