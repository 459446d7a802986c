// Reduction of equal-length buffers, element by element, in the order of the list.
#pragma once

#include <cstdint>

#include "graph/base/result.h"

namespace tessera {

// Elements [begin, end) of out[j] (each j < out_count) = in[0] + in[1] + ... (or their maximum), accumulated
// in that order. f64 and integers accumulate in their own type, f32 in f32, f16 and bf16 in f32 and are
// rounded once. `*_begin` offsets are in elements. An output may be one of the inputs.
struct ReduceArgs {
  const void* const* in = nullptr;
  int32_t in_count = 0;
  void* const* out = nullptr;
  int32_t out_count = 0;
  int64_t in_begin = 0;   // first element, in every input
  int64_t out_begin = 0;  // first element, in every output
  int64_t count = 0;
};
using ReduceFn = void (*)(const ReduceArgs& args);

// Null when the type or the reduction is not supported.
ReduceFn find_reduce(int32_t dtype, int32_t reduce);

}  // namespace tessera
