#include "parallel/planner/recompute_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "parallel/pricing/cost_model.h"

namespace tessera {

namespace {

class RecomputeSearch {
 public:
  RecomputeSearch(const RecomputeOptions& options, int64_t limit, const MeasureSet& measure)
      : options_(options), limit_(limit), measure_(measure) {}

  Status forecast(const std::vector<int64_t>& whole, int32_t most, double beat_s) {
    std::vector<Budget> budgets(options_.places());
    for (size_t p = 0; p < budgets.size(); ++p)
      budgets[p].now = limit_ - (arena(whole, p) - options_.live_bytes(p));
    std::optional<std::vector<TensorId>> last;
    MeasuredSet found;
    int64_t step = limit_ / 1000 + 1;
    // Twice the budget while none fits: recomputing everything costs more than searching.
    for (int32_t lowered = 0, rounds = 0; lowered < (best_ ? most : 2 * most) && rounds < 4 * most;
         ++rounds) {
      std::vector<int64_t> now;
      for (const Budget& budget : budgets) now.push_back(budget.now);
      const auto set = options_.choose(now);
      if (!set) return {};
      if (last && set->tensors == *last) {
        if (fits(found)) return {};
        // If it does not fit, budgets shrink in growing steps.
        for (size_t p = 0; p < budgets.size(); ++p)
          if (arena(found, p) > limit_) budgets[p].now -= step;
        step *= 2;
        continue;
      }
      last = set->tensors;
      TSR_ASSIGN_OR_RETURN(found, measure_(set->tensors));
      ++lowered;
      if (fits(found)) take(*set, found);
      // More would have to be recomputed.
      if (!fits(found) && found.seconds >= beat_s) return {};
      bool moved = false;
      for (size_t p = 0; p < budgets.size(); ++p) moved = budgets[p].move(limit_, arena(found, p)) || moved;
      if (!moved) return {};
    }
    return {};
  }

  // Keeps the most expensive value after all if it fits.
  Status keep_more(int32_t most, double beat_s) {
    if (!best_ || seconds_ >= beat_s) return {};
    for (const auto& [place, value] : options_.dearest(*best_)) {
      if (most-- == 0) break;
      auto released = best_->released;
      released[place][value] = false;
      const RecomputeOptions::Set fewer = options_.set_of(std::move(released));
      if (fewer.tensors == best_->tensors) continue;
      TSR_ASSIGN_OR_RETURN(const MeasuredSet found, measure_(fewer.tensors));
      if (fits(found)) take(fewer, found);
    }
    return {};
  }

  Status spare(const std::vector<TensorId>& tensors) {
    if (best_) return {};
    TSR_ASSIGN_OR_RETURN(const MeasuredSet found, measure_(tensors));
    if (fits(found)) best_ = RecomputeOptions::Set{tensors, {}, 0};
    return {};
  }

  std::optional<std::vector<TensorId>> result() && {
    if (!best_) return std::nullopt;
    return std::move(best_->tensors);
  }

 private:
  // Budget: forecast bytes, between one that fitted and one that did not.
  struct Budget {
    int64_t now = 0;
    int64_t fitted = std::numeric_limits<int64_t>::min(), failed = std::numeric_limits<int64_t>::max();

    bool move(int64_t limit, int64_t arena) {
      const int64_t close = limit / 500, before = now;
      if (arena <= limit)
        fitted = std::max(fitted, now);
      else
        failed = std::min(failed, now);
      if (arena <= limit && limit - arena <= close) return false;
      now += limit - arena;
      const bool between =
          fitted != std::numeric_limits<int64_t>::min() && failed != std::numeric_limits<int64_t>::max();
      if (between && (now <= fitted || now >= failed)) {
        if (failed - fitted <= close) return now = fitted, now != before;
        now = fitted + (failed - fitted) / 2;
      }
      return now != before;
    }
  };

  static int64_t at(const std::vector<int64_t>& arenas, int32_t rank) {
    return arenas[static_cast<size_t>(rank)];
  }
  int64_t arena(const std::vector<int64_t>& arenas, size_t place) const {
    return at(arenas, options_.rank(place));
  }
  int64_t arena(const MeasuredSet& set, size_t place) const { return arena(set.arena_bytes, place); }
  bool fits(const MeasuredSet& set) const { return std::ranges::max(set.arena_bytes) <= limit_; }

  void take(const RecomputeOptions::Set& set, const MeasuredSet& found) {
    if (best_ && found.seconds >= seconds_) return;
    best_ = set;
    seconds_ = found.seconds;
  }

  const RecomputeOptions& options_;
  const int64_t limit_;
  const MeasureSet& measure_;
  std::optional<RecomputeOptions::Set> best_;
  double seconds_ = 0;
};

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

Result<std::optional<std::vector<TensorId>>> search_recompute_set(
    const RecomputeOptions& options, const std::vector<int64_t>& whole, int64_t limit,
    const std::vector<TensorId>& spare, const MeasureSet& measure, const RecomputeEffort& effort) {
  RecomputeSearch search(options, limit, measure);
  TSR_RETURN_IF_ERROR(search.forecast(whole, effort.forecasts, effort.beat_s));
  TSR_RETURN_IF_ERROR(search.keep_more(effort.kept, effort.beat_s));
  TSR_RETURN_IF_ERROR(search.spare(spare));
  return std::move(search).result();
}

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
