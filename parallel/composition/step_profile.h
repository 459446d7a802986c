// StepProfile: what a training step takes of a device, block by block, read off the lowered program of a model with few blocks. Steps of
// models with more blocks, in pipelines of any schedule, are composed of it (composed_memory.h).
//
// The program has no pipeline. Its micro-batches follow each other, so that bytes alive where one block's pass ends and the next one's
// begins are what the pass leaves behind: saved activations from forward to backward, gradients of results from backward to the
// gradients of weights, sums of gradients from the first micro-batch on.
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

// What runs of a block at a time. kWeight is apart where the schedule splits backward; else kBackward has it.
enum class BlockPass : uint8_t { kForward, kBackward, kWeight, kUpdate };
inline constexpr size_t kBlockPasses = 4;

// The first micro-batch makes the sums of gradients, to which the others add. Without a pipeline updates go with the last one's backward.
enum class Turn : uint8_t { kFirst, kSteady, kLast };
inline constexpr size_t kTurns = 3;

// Bytes inside a run, counted from those alive when the pass begins.
struct PassCost {
  int64_t peak = 0;       // at most
  int64_t peak_ahead = 0;  // at most, with what the next block's pass fetches ahead meanwhile
  int64_t left = 0;       // when it has ended
  double seconds = 0;     // until the next pass begins, or the host has issued it
};

// PassCauses: the costs of a pass by cause, which add up to them. Without a breakdown all bytes are transient.
struct PassCauses {
  BytesByCause peak, peak_ahead, left;
  std::vector<TimeShare> time;
};

// By turn and pass.
template <class Cost>
using ByPass = std::array<std::array<Cost, kBlockPasses>, kTurns>;

// A tensor that outlives a run, or is fed before or fetched after it.
struct PersistentBytes {
  SlotKind kind = SlotKind::kParameter;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;           // of one micro-batch where `by_batch`
  bool by_batch = false;
  std::vector<int32_t> blocks;  // that read or update it, ascending
  std::string name = {}, type = {}, sharding = {};  // global, of one micro-batch; with a breakdown
};

// Breakdown: a profile by cause.
struct ProfileBreakdown {
  bool is_complete = false;                     // as it was asked for
  std::vector<ByPass<PassCauses>> passes;       // by block
  std::vector<BytesByCause> copies;             // by block
  std::vector<std::vector<TimeShare>> copying;  // by block
  std::vector<PersistentBytes> elsewhere;       // on other tiers
  std::array<BytesByCause, 2> messages;         // forward, backward
};

struct StepProfile {
  BlockMap map;
  std::vector<ByPass<PassCost>> passes;  // by block of `map`, ends included
  // By block: copies of parameters that are made once, before the first pass, and last to the end; and what making them takes.
  std::vector<int64_t> copies;
  std::vector<double> copying_s;
  std::vector<PersistentBytes> persistent;
  // Between neighbouring blocks, of one micro-batch, as the sender has them.
  int64_t forward_message = 0, backward_message = 0;
  int32_t devices = 1;  // of the place; in a pipeline every stage has as many, in order
  ProfileBreakdown breakdown;

  const PassCost& cost(int32_t block, Turn turn, BlockPass pass) const {
    return passes[static_cast<size_t>(block)][static_cast<size_t>(turn)][static_cast<size_t>(pass)];
  }
  const PassCauses& causes(int32_t block, Turn turn, BlockPass pass) const {
    return breakdown.passes[static_cast<size_t>(block)][static_cast<size_t>(turn)][static_cast<size_t>(pass)];
  }
};

// `rank`: the first of `layout`, which has one place. `splits`: gradients of weights are a pass apart. `apart`: updates come after all
// passes, as in pipelines.
// Seconds are those of `cluster`, as the simulator has them, had the other ranks nothing to wait for.
Result<StepProfile> profile_step(const EntryLayout& layout, const RankProgram& rank, const Cluster& cluster,
                                 bool splits, bool apart, bool breakdown = false,
                                 const SoftwareTraits& traits = {});

}  // namespace tessera
