// OperandRanges: bytes that launches read and write, which determine whether they may run concurrently.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::cuda {

struct OperandRange {
  const void* begin;
  int64_t bytes;
  bool is_written;
};

class OperandRanges {
 public:
  // Whether a launch that touches `range` must follow those added so far.
  bool depends(const OperandRange& range) const {
    const auto from = reinterpret_cast<uintptr_t>(range.begin);
    const uintptr_t to = from + static_cast<uintptr_t>(range.bytes);
    for (const OperandRange& known : ranges_) {
      const auto begin = reinterpret_cast<uintptr_t>(known.begin);
      const uintptr_t end = begin + static_cast<uintptr_t>(known.bytes);
      if ((range.is_written || known.is_written) && from < end && begin < to) return true;
    }
    return false;
  }
  void add(const OperandRange& range) { ranges_.push_back(range); }

 private:
  std::vector<OperandRange> ranges_;
};

}  // namespace tessera::cuda
