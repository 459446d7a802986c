// Fitted prices: measured seconds -> curves and tables of a profile, on which more work never costs less.
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

// Raises values of a row-major grid along every axis to at least those of less work.
void raise_to_monotonic(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Lowers values along every axis so that twice the work takes at most twice as long: a part of a kernel then
// never costs less than its share. Compute does scale so; other measurements were disturbed.
void limit_to_scale(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Both, by about the least change on logarithms, so that a disturbed value moves towards its neighbours and
// not they towards it.
void make_consistent(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks);

// Takes the median of points of equal work, makes it monotonic, and keeps at most one mark for every factor
// of `spacing` in work, besides the first and the last.
PriceCurve fit_curve(std::vector<MeasuredPoint> points, double spacing = 1.6);

// The same for both times of a kernel; the table's axis is bytes.
PriceTable fit_table(std::string op, DType dtype, const std::vector<MeasuredPoint>& points, bool is_shared);

// Combines the points of several passes: the slowest of each with the help of all cores, the median with
// every core at work on its own. The host may place helping cores far apart, and a plan has to live with
// that.
std::vector<MeasuredPoint> put_together(const std::vector<std::vector<MeasuredPoint>>& passes);

// Fills the table of a grid with its points, row-major, monotonic.
PriceTable fill_table(PriceTable table, const std::vector<MeasuredPoint>& points, bool is_shared);

}  // namespace tessera
