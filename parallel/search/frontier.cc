#include "parallel/search/frontier.h"

#include <algorithm>

namespace tessera {

Frontier frontier(std::vector<Tradeoff> points) {
  std::ranges::stable_sort(points, [](const Tradeoff& a, const Tradeoff& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.time_s < b.time_s;
  });
  Frontier kept;
  for (const Tradeoff& point : points)
    if (kept.empty() || point.time_s < kept.back().time_s) kept.push_back(point);
  return kept;
}

std::vector<size_t> lower_hull(const Frontier& points) {
  std::vector<size_t> hull;
  const auto above = [&](size_t a, size_t b, size_t c) {  // b on or above the line from a to c
    const double run = static_cast<double>(points[c].bytes - points[a].bytes);
    const double at = static_cast<double>(points[b].bytes - points[a].bytes);
    return (points[b].time_s - points[a].time_s) * run >= (points[c].time_s - points[a].time_s) * at;
  };
  for (size_t i = 0; i < points.size(); ++i) {
    while (hull.size() >= 2 && above(hull[hull.size() - 2], hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

}  // namespace tessera
