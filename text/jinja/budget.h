// Budget: limits of one rendering, so that no template stalls or exhausts
// its host. Steps bound time, bytes bound live memory. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "graph/base/result.h"

namespace tessera::jinja {

struct Limits {
  int64_t steps = 8'000'000;           // evaluated nodes, pieces of 64 bytes, characters
  int64_t bytes = int64_t{64} << 20;   // of live values
  int64_t output = int64_t{32} << 20;  // size of the text
};
// Limits for this many bytes of variables.
Limits limits_for(size_t input_bytes);

// Lease: bytes of a budget while a value holds them.
class Lease {
 public:
  Lease() = default;
  Lease(int64_t* live, int64_t bytes) : live_(live), bytes_(bytes) {}
  Lease(Lease&& other) noexcept
      : live_(std::exchange(other.live_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(live_, other.live_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Lease() {
    if (live_ != nullptr) *live_ -= bytes_;
  }
  int64_t bytes() const { return bytes_; }
  // Merges another lease of the same budget.
  void add(Lease other) {
    if (live_ == nullptr) live_ = other.live_;
    bytes_ += other.bytes_;
    other.live_ = nullptr;
  }

 private:
  int64_t* live_ = nullptr;
  int64_t bytes_ = 0;
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  Status spend(int64_t steps = 1);
  // Steps for copying or comparing bytes.
  Status spend_bytes(size_t bytes) { return spend(static_cast<int64_t>(bytes / 64) + 1); }
  // Steps for work on each character.
  Status spend_characters(size_t bytes) { return spend(static_cast<int64_t>(bytes / 2) + 1); }
  // Steps for copying or examining items; none for a few.
  Status spend_items(size_t items) { return spend(static_cast<int64_t>(items / 2)); }
  // Steps for values with an allocation each.
  Status spend_allocations(size_t values) { return spend(kStepsOfAllocation * static_cast<int64_t>(values)); }
  // Values must not outlive the budget.
  Result<Lease> lease(size_t bytes);
  Status check_output(size_t bytes) const;

 private:
  static constexpr int64_t kStepsOfAllocation = 3;
  const Limits limits_;
  int64_t steps_left_;
  int64_t live_ = 0;
};

}  // namespace tessera::jinja
