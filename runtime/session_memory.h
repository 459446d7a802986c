// SessionMemory: a session's arenas: predicted bytes, measured bytes, and
// the other memory of its devices. One thread at a time, not during a run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/executable_impl.h"
#include "runtime/memory_probe.h"
#include "runtime/rank_executor.h"
#include "runtime/session.h"

namespace tessera {

class SessionMemory {
 public:
  // `ranks` is borrowed and may be filled later.
  SessionMemory(const Executable::Impl& executable, const RankExecutors& ranks)
      : executable_(executable), ranks_(ranks) {}

  // Call after kernels and their libraries are loaded, before arenas exist.
  Status note_used_before();
  // Call after arenas exist: poisons them, to find the bytes touched from now on.
  Status measure();
  // `entry`: its index on each rank that lives here (-1: none).
  Status before_run(std::span<const int32_t> entry);
  Status after_run(std::span<const int32_t> entry);
  // Records a host write to a slot of the rank at `index` of Program::ranks.
  void note_written(size_t index, const SlotRef& at, int64_t bytes);

  // weights: shared weights; null: none.
  std::vector<MemoryReport> report(const SharedWeights* weights) const;

 private:
  int64_t arenas_on_device_of(size_t index) const;
  template <class Each>
  Status for_each_probe(std::span<const int32_t> entry, const Each& each);

  const Executable::Impl& executable_;
  const RankExecutors& ranks_;
  std::vector<std::vector<MemoryProbe>> probes_;  // by Program::ranks and arena; empty: not measuring
  std::vector<int64_t> used_before_;              // of each rank's device; -1: unknown
};

}  // namespace tessera
