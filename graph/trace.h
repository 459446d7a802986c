// TraceEvent: one event of a trace, measured or
// predicted; both have the same form for comparison.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct TraceEvent {
  int32_t rank = 0;
  int32_t track = 0;                 // row of the rank: its stream, by track_of(StreamId)
  std::string stream;                // "compute", "collectives", "send to 1"
  std::string name;                  // "matmul block.0.mlp", "all_reduce tp"
  std::string category;              // "kernel", "collective", "p2p", "copy"
  int64_t begin_ns = 0, end_ns = 0;  // since the session, or the simulated run, began
  int32_t micro_batch = 0;
  int64_t bytes = 0;  // bytes it moves; operands and results of a kernel
  std::string entry;  // "train_step", "decode"
  // For kernels only: the chosen variant, its operands, and its least work (OpCost).
  std::string variant, operands;
  double flops = 0, memory_bytes = 0;
};

}  // namespace tessera
