// Products of one quantised row with panels: blocks are multiplied while they are unpacked, in registers. The
// sums are the same, bit for bit, as those of unpacked panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/backends/cpu/kernels/quantized_layout.h"

namespace tessera::cpu {

// Sums of one panel. `rows` are kLanes rows, `stride` bytes apart, or with stride 0 an interleaved panel;
// `next` is fetched towards the end: the panel that follows, or null.
using DotPanel = void(const std::byte* rows, int64_t stride, int64_t block_count, const std::byte* x,
                      float* sums, const std::byte* next);

// Null for types without a vector unpacker.
DotPanel* find_dot_panel(const QuantizedLayout& layout);

}  // namespace tessera::cpu
