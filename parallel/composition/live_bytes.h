// LiveBytes: bytes alive inside a run by cause, for any order of its instructions.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "graph/program.h"
#include "parallel/pricing/program_memory.h"

namespace tessera {

// BytesByCause: bytes of a device by MemoryCause, followed by those of its host and its files.
struct BytesByCause {
  std::array<int64_t, kMemoryCauses + 2> at{};

  static size_t place_of(Tier tier) { return kMemoryCauses - 1 + static_cast<size_t>(tier); }
  int64_t& of(MemoryCause cause) { return at[static_cast<size_t>(cause)]; }
  int64_t device() const { return std::accumulate(at.begin(), at.begin() + kMemoryCauses, int64_t{0}); }
  BytesByCause& operator+=(const BytesByCause& other) {
    for (size_t i = 0; i < at.size(); ++i) at[i] += other.at[i];
    return *this;
  }
  BytesByCause& operator-=(const BytesByCause& other) {
    for (size_t i = 0; i < at.size(); ++i) at[i] -= other.at[i];
    return *this;
  }
  friend BytesByCause operator+(BytesByCause a, const BytesByCause& b) { return a += b; }
  friend BytesByCause operator-(BytesByCause a, const BytesByCause& b) { return a -= b; }
};

class LiveBytes {
 public:
  // `order`: instructions of entry 0, by moment. `live_ranges`: see program_memory.h, which assigns causes; if empty, all bytes are transient.
  LiveBytes(const RankProgram& rank, std::span<const size_t> order, std::span<const LiveRange> live_ranges);
  const BytesByCause& during(size_t moment) const { return during_[moment]; }
  const BytesByCause& before(size_t moment) const { return before_[moment]; }

 private:
  std::vector<BytesByCause> during_, before_;
};

}  // namespace tessera
