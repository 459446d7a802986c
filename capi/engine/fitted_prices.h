// Measured seconds -> what a profile may hold: curves and tables on which more work is never cheaper.
#pragma once

#include <vector>

#include "graph/device_profile.h"

namespace tessera {

struct MeasuredPoint {
  double work = 0;  // bytes
  double seconds = 0, shared_seconds = 0;
};

// Least change on logarithms that makes the values never fall (pool adjacent violators).
std::vector<double> never_falling(std::vector<double> seconds);

// Along every axis of a row-major grid: each value at least those of less work.
void raise_to_monotonic(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Along every axis: twice the work takes at most twice as long, so that a part of a kernel is never cheaper
// than its share. What computes does so; what was measured otherwise was disturbed.
void limit_to_scale(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Both, by about the least change on logarithms, so that a value that was disturbed gives way to its
// neighbours and not they to it.
void settle(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Points of equal work become their median; then never falling; then at most one mark for every factor of
// `spacing` in work, but for the first and the last.
PriceCurve fit_curve(std::vector<MeasuredPoint> points, double spacing = 1.6);

// The same for both times of a kernel; the table goes by bytes.
PriceTable fit_table(std::string op, DType dtype, const std::vector<MeasuredPoint>& points, bool is_shared);

// The same points measured in several passes: of each the slowest with the help of all cores, and the median
// with every core at work on its own. Help comes from as far away as the host has put its cores for the
// moment, and a plan has to live with that.
std::vector<MeasuredPoint> put_together(const std::vector<std::vector<MeasuredPoint>>& passes);

// Fills the table of a grid with its points, row-major, settled.
PriceTable fill_table(PriceTable table, const std::vector<MeasuredPoint>& points, bool is_shared);

}  // namespace tessera
