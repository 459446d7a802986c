// StepProfile: the cost of a training step on a device, block by block, from the lowered program of a model with
// few blocks. Steps of deeper models, in pipelines of any schedule, are composed from it (composed_memory.h).
//
// The program has no pipeline. Its micro-batches run in sequence, so bytes alive between two blocks'
// passes are what the earlier pass leaves: saved activations from forward to backward, gradients of
// results from backward to weight gradients, sums of gradients from the first micro-batch on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/explanation.h"
#include "graph/program.h"
#include "parallel/composition/block_map.h"
#include "parallel/composition/live_bytes.h"
#include "parallel/composition/solo_run.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// BlockPass: a block's work of one kind. kWeight is separate if the schedule splits backward; else kBackward includes it.
enum class BlockPass : uint8_t { kForward, kBackward, kWeight, kUpdate };
inline constexpr size_t kBlockPasses = 4;

// Turn: a micro-batch's position in the step. The first creates sums of gradients, others add to them. Without a pipeline,
// updates belong to the last one's backward.
enum class Turn : uint8_t { kFirst, kSteady, kLast };
inline constexpr size_t kTurns = 3;

// PassCost: bytes inside a run, relative to those alive when the pass begins.
struct PassCost {
  int64_t peak = 0;       // peak
  int64_t peak_ahead = 0;  // peak including the next block's prefetches
  int64_t left = 0;       // alive when it ends
  double seconds = 0;     // until the next pass begins, or until the host has issued it
};

// PassCauses: costs of a pass by cause; they add up. Without a breakdown all bytes are transient.
struct PassCauses {
  BytesByCause peak, peak_ahead, left;
  std::vector<TimeShare> time;
};

// By turn and pass.
template <class Cost>
using ByPass = std::array<std::array<Cost, kBlockPasses>, kTurns>;

// PersistentBytes: a tensor that outlives a run, is fed before it or fetched after it.
struct PersistentBytes {
  SlotKind kind = SlotKind::kParameter;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;           // of one micro-batch if `by_batch`
  bool by_batch = false;
  std::vector<int32_t> blocks;  // that read or update it, ascending
  std::string name = {}, type = {}, sharding = {};  // global, of one micro-batch; with a breakdown
};

// ProfileBreakdown: a profile by cause.
struct ProfileBreakdown {
  bool is_complete = false;                     // as requested
  std::vector<ByPass<PassCauses>> passes;       // by block
  std::vector<BytesByCause> copies;             // by block
  std::vector<std::vector<TimeShare>> copying;  // by block
  std::vector<PersistentBytes> elsewhere;       // on other tiers
  std::array<BytesByCause, 2> messages;         // forward, backward
};

struct StepProfile {
  BlockMap map;
  std::vector<ByPass<PassCost>> passes;  // by block of `map`, ends included
  // By block: copies of parameters that are made once, before the first pass, and live to the end; and the time to make them.
  std::vector<int64_t> copies;
  std::vector<double> copying_s;
  std::vector<PersistentBytes> persistent;
  // Between adjacent blocks, for one micro-batch, in the sender's layout.
  int64_t forward_message = 0, backward_message = 0;
  int32_t devices = 1;  // devices of the place; in a pipeline every stage has as many, in order
  ProfileBreakdown breakdown;

  const PassCost& cost(int32_t block, Turn turn, BlockPass pass) const {
    return passes[static_cast<size_t>(block)][static_cast<size_t>(turn)][static_cast<size_t>(pass)];
  }
  const PassCauses& causes(int32_t block, Turn turn, BlockPass pass) const {
    return breakdown.passes[static_cast<size_t>(block)][static_cast<size_t>(turn)][static_cast<size_t>(pass)];
  }
};

// `rank`: the first of `layout`, which has one place. `splits_backward`: weight gradients
// are a separate pass. `updates_last`: updates follow all passes, as in pipelines.
// Seconds are the simulator's for `cluster`, if other ranks never wait.
Result<StepProfile> profile_step(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster,
                                 bool splits_backward, bool updates_last, bool breakdown = false,
                                 const SoftwareTraits& traits = {});

}  // namespace tessera
