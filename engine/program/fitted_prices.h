// Fitted prices: measured seconds become curves and tables in which more work never costs less.
#pragma once

#include <vector>

#include "graph/device_profile.h"

namespace tessera {

struct MeasuredPoint {
  double work = 0;  // bytes
  double seconds = 0, shared_seconds = 0;
};

// Smallest change in logarithms that makes the values monotonic (pool adjacent violators).
std::vector<double> never_falling(std::vector<double> seconds);

// Raises each value of a row-major grid to at least the values of less work.
void raise_to_monotonic(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Lowers values so that twice the work takes at most twice as long; then a part of a kernel
// costs at most its share. Compute scales so; exceptions are disturbed measurements.
void limit_to_scale(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Applies both rules by nearly the smallest change in logarithms,
// so that disturbed values move towards their neighbours.
void make_consistent(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Medians of equal work, made monotonic; keeps one mark
// for every factor of `spacing` in work, and both ends.
PriceCurve fit_curve(std::vector<MeasuredPoint> points, double spacing = 1.6);

// The same for both times of a kernel; the table's axis is bytes.
PriceTable fit_table(std::string op, DType dtype, const std::vector<MeasuredPoint>& points, bool is_shared);

// Combines the points of several passes: the slowest with the
// help of all cores, the median with every core busy. The host
// may place helping cores far apart, which plans must tolerate.
std::vector<MeasuredPoint> combine_passes(const std::vector<std::vector<MeasuredPoint>>& passes);

// Fills the table of a grid with its points, row-major, monotonic.
PriceTable fill_table(PriceTable table, const std::vector<MeasuredPoint>& points, bool is_shared);

}  // namespace tessera
