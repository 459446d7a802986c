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

Frontier either(const Frontier& a, const Frontier& b) {
  std::vector<Tradeoff> all(a);
  all.insert(all.end(), b.begin(), b.end());
  return frontier(std::move(all));
}

Frontier both(const Frontier& a, const Frontier& b) {
  std::vector<Tradeoff> all;
  all.reserve(a.size() * b.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j)
      all.push_back(
          {a[i].time_s + b[j].time_s, a[i].bytes + b[j].bytes, static_cast<int64_t>(i * b.size() + j)});
  return frontier(std::move(all));
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

Footprint operator+(const Footprint& a, const Footprint& b) {
  return {a.time_s + b.time_s, a.stationary_bytes + b.stationary_bytes,
          a.activation_bytes + b.activation_bytes, std::max(a.transient_bytes, b.transient_bytes)};
}

std::vector<Footprint> undominated(std::vector<Footprint> points) {
  const auto no_worse = [](const Footprint& a, const Footprint& b) {
    return a.time_s <= b.time_s && a.stationary_bytes <= b.stationary_bytes &&
           a.activation_bytes <= b.activation_bytes && a.transient_bytes <= b.transient_bytes;
  };
  std::vector<Footprint> kept;
  for (const Footprint& point : points) {
    if (std::ranges::any_of(kept, [&](const Footprint& other) { return no_worse(other, point); })) continue;
    std::erase_if(kept, [&](const Footprint& other) { return no_worse(point, other); });
    kept.push_back(point);
  }
  return kept;
}

Tradeoff at_stage(const Footprint& block, int64_t in_flight) {
  return {block.time_s, block.stationary_bytes + in_flight * block.activation_bytes, 0};
}

}  // namespace tessera
