// Slots of experts packed together, so that an expert's weight is read once for all sequences and empty slots cost
// nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backends/cpu/kernels/expert_rows.h"

namespace tessera::cpu {

// PackedSlots: the taken slots of one expert, rows of `columns` values, without the empty ones between them.
struct PackedSlots {
  const ExpertRows& rows;
  const LaunchArgs& args;
  int64_t expert;

  int64_t count() const {
    int64_t sum = 0;
    for (int64_t b = 0; b < rows.B; ++b) sum += rows.taken(args, expert, b);
    return sum;
  }
  bool whole(int64_t taken) const { return taken == rows.B * rows.S; }
  int64_t first(int64_t b) const { return (expert * rows.B + b) * rows.S; }

  // The slots themselves when all are taken, else `room`, filled with the taken ones.
  const float* pack(const float* slots, int64_t columns, int64_t taken, float* room) const {
    if (whole(taken)) return slots + first(0) * columns;
    float* to = room;
    for (int64_t b = 0; b < rows.B; ++b) {
      const int64_t some = rows.taken(args, expert, b) * columns;
      to = std::copy_n(slots + first(b) * columns, some, to);
    }
    return room;
  }
  void unpack(const float* from, int64_t columns, float* slots) const {
    for (int64_t b = 0; b < rows.B; ++b) {
      const int64_t some = rows.taken(args, expert, b) * columns, all = rows.S * columns;
      float* to = slots + first(b) * columns;
      std::fill(std::copy_n(from, some, to), to + all, 0.0f);
      from += some;
    }
  }
};

// Touches the end of the workspace. The loads, which are data, decide how much of it a run uses; the arena is
// sized for full loads. After this every run touches the same bytes, which can be compared with the plan.
inline void touch_end(const LaunchArgs& args, int64_t bytes) {
  if (bytes > 0) static_cast<char*>(args.workspace)[bytes - 1] = 0;
}

// Floats of an array in the workspace, so that the next one begins at a multiple of 64 bytes.
constexpr int64_t aligned_floats(int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace tessera::cpu
