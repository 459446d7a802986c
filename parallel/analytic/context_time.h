// What attention over a split sequence (cp) adds to a pass of one block.
//   ring     keys and values go round, a part for every rank, beside the scores of the part at hand; backward
//            they go round again, and their gradients with them
//   ulysses  four exchanges bring heads to ranks and the mix back; backward the same again
//   gather   keys and values are put together first; backward again, and their gradients are scattered
#pragma once

#include "parallel/analytic/device_time.h"
#include "parallel/analytic/foreign_plan.h"

namespace tessera {

struct ContextTime {
  double exposed_s = 0;  // that the pass waits for, or is slowed down by
  double kernels = 0;
};

// Bytes of one rank: queries, keys and values; what attention yields. `beside_s`: computing the scores.
ContextTime context_time(const Cluster& cluster, const ForeignPlan& plan, double qkv_bytes,
                         double mixed_bytes, double beside_s, bool backward);

}  // namespace tessera
