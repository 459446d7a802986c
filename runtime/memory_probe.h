// MemoryProbe: finds the highest byte of one arena that runs touch, by poisoning it before runs and scanning
// it after.
//
// The whole arena starts as pattern A. Before the first and second run of each
// entry, the bytes that no persistent slot (parameter, state, constant, input,
// output) covers are filled again, with A and then B, so that a byte that equals
// the poison by chance shows in the other run. Both patterns read as NaN or huge
// numbers, so a kernel that reads unwritten bytes spoils the result.
//
// On devices with their own memory a workspace counts as touched once its kernel
// has run, since a library need not write all the workspace that it requests.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "runtime/backend_abi.h"

namespace tessera {

class MemoryProbe {
 public:
  // `arena`: of `tier`, device or host. Its first `shared_bytes`,
  // parameters stored elsewhere, count as touched.
  MemoryProbe(const tsr_backend_api& api, tsr_abi_stream* stream, Tier tier, void* arena,
              const RankProgram& program, int64_t shared_bytes = 0);

  Status poison_all();
  Status before_run(size_t entry);
  Status after_run(size_t entry);
  // Records a host write up to `end`, which needs no scan.
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
  std::vector<Interval> persistent_, transient_;  // disjoint, sorted; their union is the arena
  std::vector<int32_t> runs_;                     // by entry
  std::vector<int64_t> lent_;                     // by entry: end of the last workspace, which counts as touched
  std::vector<std::byte> window_;                 // buffer of a scan
  int64_t highest_ = 0;
};

}  // namespace tessera
