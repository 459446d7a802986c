// MemoryProbe: finds the highest byte of one arena that runs touch, by poisoning it before runs and scanning
// it after.
//
// The whole arena starts as pattern A. Before the first and the second run of each entry point the bytes that
// no persistent slot (parameter, state, constant, input, output) ever covers are filled again, with A and
// then with B, so that a byte which happens to equal the poison in one run shows in the other. Both patterns
// read as NaN or huge numbers, so a kernel that reads unwritten bytes spoils the result instead of passing by
// luck.
//
// On devices with memory of their own, workspaces count as touched once their kernel has run: a library
// requests the workspace that its algorithm may need, and need not write all of it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "runtime/backend_abi.h"

namespace tessera {

class MemoryProbe {
 public:
  // `arena` is that of `tier`, device or host. Its first `shared_bytes`, of parameters that lie elsewhere,
  // count as touched.
  MemoryProbe(const tsr_backend_api& api, tsr_abi_stream* stream, Tier tier, void* arena,
              const RankProgram& program, int64_t shared_bytes = 0);

  Status poison_all();
  Status before_run(size_t entry);
  Status after_run(size_t entry);
  // Records that the host wrote bytes up to `end`, which need no scan.
  void touched(int64_t end) {
    if (end > highest_) highest_ = end;
  }
  int64_t highest() const { return highest_; }
  Tier tier() const { return tier_; }

 private:
  struct Interval {
    int64_t begin, end;
  };
  Status fill(const std::vector<Interval>& intervals, int32_t byte);
  Status scan(const std::vector<Interval>& intervals, int32_t byte);

  const tsr_backend_api& api_;
  tsr_abi_stream* stream_;
  Tier tier_;
  std::byte* arena_;
  int64_t begin_, arena_bytes_;
  std::vector<Interval> persistent_, transient_;  // disjoint, sorted; together the arena
  std::vector<int32_t> runs_;                     // by entry
  std::vector<int64_t> lent_;                     // by entry: end of its last workspace, counted as touched
  std::vector<std::byte> window_;                 // what a scan looks through
  int64_t highest_ = 0;
};

}  // namespace tessera
