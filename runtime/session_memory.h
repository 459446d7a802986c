// SessionMemory: the arenas of one session: the bytes that its Program predicts, those that runs touch where that is measured,
// and what its devices hold besides. One thread at a time, and not during a run.
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
  // `ranks` are borrowed, and may be filled later.
  SessionMemory(const Executable::Impl& executable, const RankExecutors& ranks)
      : executable_(executable), ranks_(ranks) {}

  // Once kernels are prepared, and the libraries that they need are open; before there are arenas.
  Status note_used_before();
  // Once there are arenas: poisons them, to find the bytes that are touched from here on.
  Status measure();
  // Of an entry, which has a number on each rank (-1: none).
  Status before_run(std::span<const int32_t> entry);
  Status after_run(std::span<const int32_t> entry);
  // Bytes of a slot that the host wrote.
  void note_written(int32_t rank, const SlotRef& at, int64_t bytes);

  // weights: that lie elsewhere; null: none.
  std::vector<MemoryReport> report(const SharedWeights* weights) const;

 private:
  int64_t arenas_on_device_of(size_t rank) const;
  template <class Each>
  Status for_each_probe(std::span<const int32_t> entry, const Each& each);

  const Executable::Impl& executable_;
  const RankExecutors& ranks_;
  std::vector<std::vector<MemoryProbe>> probes_;  // of each rank's arenas; empty when not measuring
  std::vector<int64_t> used_before_;              // of each rank's device; -1 where unknown
};

}  // namespace tessera
