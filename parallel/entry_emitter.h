// EntryEmitter: writes the instructions of one entry point on one rank.
//
// Which conversions are kept. A value lies in one layout as produced, and in others as consumers asked. What
// a reduction of addends yields is kept for all later consumers (the addends are not reduced twice). Every
// other conversion (gathered parameters, gathered activations) is kept among nodes of one phase (forward,
// backward, update) of one micro-batch and made again in the next: rows marked "re" in the sharding algebra.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/entry_layout.h"
#include "parallel/rank_builder.h"

namespace tessera {

// Slots that outlive a run, by tensor name: shared between entries.
struct SharedSlot {
  TensorType type;
  ShardingSpec spec;
  TensorKind kind = TensorKind::kParameter;
  SlotRef at;
};
using SharedSlots = std::map<std::string, SharedSlot>;

class EntryEmitter {
 public:
  // `tasks`: what this rank does, in order; they outlive the emitter. Micro-batches may be interleaved.
  EntryEmitter(const EntryLayout& layout, std::span<const Task> tasks, RankBuilder& builder,
               SharedSlots& shared, int32_t entry)
      : layout_(layout), tasks_(tasks), builder_(builder), shared_(shared), entry_(entry) {}

  // Fails as a catalog declines, or when a tensor shared with an earlier entry differs in type or placement.
  Result<EntryPoint> emit();

 private:
  enum class Era : uint8_t { kForward, kBackward, kUpdate };
  struct Copy {
    ShardingSpec spec;
    SlotRef at;
    Era era = Era::kForward;  // of the consumer it was made for
    bool kept = false;        // whatever the era
  };
  static Era era_of(const Node& node);

  void find_last_reads();
  Status add_persistent_slots();
  Status add_shared_slot(TensorId id);
  void add_output_slots();
  void enter_micro_batch(int32_t micro_batch);
  Status emit_task(size_t task);
  Status emit_node(size_t task);
  Status emit_kernel(size_t task, std::vector<SlotRef> inputs);
  Result<SlotRef> output_slot(size_t task, size_t output);
  Status accumulate(size_t task);
  Status fill_outputs(TensorId tensor, Era era, NodeId node);
  Status commit_updates(size_t task);
  Status copy_persistent_outputs();

  // The value of `tensor` lying as `want`; into `destination` when given.
  Result<SlotRef> obtain(TensorId tensor, const ShardingSpec& want, Era era, NodeId node,
                         const SlotRef* destination = nullptr);
  std::vector<Copy>& copies_of(TensorId tensor, Era era);
  std::vector<Piece> pieces(TensorId tensor, const ShardingSpec& spec, SlotRef at) const;
  int64_t local_bytes(TensorId tensor, const ShardingSpec& spec) const;

  using Values = std::vector<std::vector<Copy>>;  // by tensor
  Values& values() { return live_.at(micro_batch_); }

  const EntryLayout& layout_;
  std::span<const Task> tasks_;
  RankBuilder& builder_;
  SharedSlots& shared_;
  int32_t entry_;
  EntryPoint out_;
  int32_t micro_batch_ = 0;
  std::map<int32_t, Values> live_;                // by micro-batch
  std::map<TensorId, std::vector<Copy>> totals_;  // sums over micro-batches, for the update phase and outputs
  std::map<TensorId, SlotRef> persistent_;
  std::vector<SlotRef> output_slots_;  // by output
  std::vector<bool> output_written_;
  std::vector<size_t> last_read_;  // by update: task after which nothing reads the old value
  std::vector<bool> committed_;    // by update
};

}  // namespace tessera
