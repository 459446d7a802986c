// Times of kernels in a trace, with the lower bound of each by memory and products.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// The device's peak rates; 0 where unknown.
struct Ceilings {
  double bytes_per_s = 0;  // of a large copy, read and written
  double flops_per_s = 0;  // of a large product
};

// The kernels of the runs of `entry` in `trace` (tsr_trainer_take_trace),
// by kernel (op, variant, operands), the longest first:
// {"runs", "seconds", "floor_seconds", "launches", "kernels": [{"op",
// "variant", "operands", "count", "seconds", "floor_seconds"}]}
// all of one run, on the busiest rank. Other events count under their
// own names, without floor. A launch of several kernels is recorded
// as the first of them, with the sum of their floors.
Json kernel_times(const std::string& trace, const std::string& entry, const Ceilings& ceilings);

// Seconds of matrix products in one run.
double product_seconds(const Json& times);

// As a table of the `rows` longest, one line each.
std::string kernel_table(const Json& times, size_t rows);

}  // namespace cli
