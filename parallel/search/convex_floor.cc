#include "parallel/search/convex_floor.h"

#include <algorithm>

namespace tessera {

ConvexFloor::ConvexFloor(std::span<const KnownValue> known, double slope) {
  std::vector<Tradeoff> points;
  for (size_t i = 0; i < known.size(); ++i) {
    points.push_back({known[i].value, known[i].at});
    // The least that it can be just before the next.
    if (i + 1 < known.size() && known[i + 1].at > known[i].at + 1)
      points.push_back({known[i].value + slope * static_cast<double>(known[i + 1].at - known[i].at - 1),
                        known[i + 1].at - 1});
  }
  for (const size_t corner : lower_hull(points)) corners_.push_back(points[corner]);
}

double ConvexFloor::operator()(double at) const {
  size_t next = 1;
  while (next + 1 < corners_.size() && static_cast<double>(corners_[next].bytes) < at) ++next;
  if (next >= corners_.size()) return corners_[0].time_s;
  const Tradeoff &a = corners_[next - 1], &b = corners_[next];
  return a.time_s +
         (at - static_cast<double>(a.bytes)) * (b.time_s - a.time_s) / static_cast<double>(b.bytes - a.bytes);
}

double ConvexFloor::steepest() const {
  if (corners_.size() < 2) return 0;
  const Tradeoff &a = corners_[corners_.size() - 2], &b = corners_.back();
  return (b.time_s - a.time_s) / static_cast<double>(b.bytes - a.bytes);
}

}  // namespace tessera
