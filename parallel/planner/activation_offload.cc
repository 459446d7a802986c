#include "parallel/planner/activation_offload.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel/pricing/cost_model.h"

namespace tessera {

namespace {

using Waiting = RecomputeOptions::Waiting;

// An offloaded value must be idle for so many times its copy out and back: copies queue.
constexpr double kPatience = 4;

// The element of `movable` with the value's bytes; null: it cannot move.
const OffloadedTensor* movable_of(const Waiting& value, std::span<const OffloadedTensor> movable) {
  for (const TensorId id : value.tensors) {
    const auto at = std::ranges::lower_bound(movable, id, {}, &OffloadedTensor::tensor);
    if (at != movable.end() && at->tensor == id) return &*at;
  }
  return nullptr;
}

bool dearer(const Waiting& a, const Waiting& b) {
  const double each = a.seconds / static_cast<double>(a.bytes),
               other = b.seconds / static_cast<double>(b.bytes);
  // The same operation on other weights has an equal price, except for rounding.
  const bool same = each == other || std::abs(each - other) <= 1e-6 * std::max(each, other);
  return same ? a.first < b.first : each > other;
}

}  // namespace

std::vector<OffloadedTensor> choose_activation_offload(const RecomputeOptions& options,
                                                       std::span<const OffloadedTensor> movable,
                                                       const Cluster& cluster, double copy_s,
                                                       int64_t most_bytes) {
  std::set<TensorId> moved;
  for (size_t p = 0; p < options.places(); ++p) {
    std::vector<Waiting> values(options.waiting(p).begin(), options.waiting(p).end());
    std::ranges::stable_sort(values, dearer);
    double taken_s = 0;
    int64_t bytes = 0;
    for (const Waiting& value : values) {
      const OffloadedTensor* it = movable_of(value, movable);
      const double there_and_back_s = 2 * price_of_move(value.bytes, cluster).alone_s;
      if (it == nullptr || taken_s + there_and_back_s > copy_s || bytes >= most_bytes) continue;
      if (value.idle_s < kPatience * there_and_back_s) continue;
      taken_s += there_and_back_s, bytes += value.bytes;
      moved.insert(it->tensor);
    }
  }
  std::vector<OffloadedTensor> set;
  for (const OffloadedTensor& it : movable)
    if (moved.contains(it.tensor)) set.push_back(it);
  return set;
}

int32_t prefetch_distance(const RecomputeOptions& options, std::span<const OffloadedTensor> moved,
                          const Cluster& cluster, double step_s, int64_t nodes) {
  if (moved.empty()) return 1;
  int64_t largest = 0;
  for (size_t p = 0; p < options.places(); ++p)
    for (const Waiting& value : options.waiting(p))
      if (movable_of(value, moved) != nullptr) largest = std::max(largest, value.bytes);
  constexpr double kMost = 64, kShorter = 3;  // nodes may take a third of the average in a row
  const double each_s = step_s / kShorter / static_cast<double>(std::max<int64_t>(1, nodes));
  const double move_s = price_of_move(largest, cluster).alone_s;
  return static_cast<int32_t>(std::clamp(std::ceil(move_s / each_s), 1.0, kMost));
}

}  // namespace tessera
