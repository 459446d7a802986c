#include "parallel/search/rematerialization.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {

namespace {

// Stretches: between ends of intervals the choice is constant, so a stretch is represented by its worst moment.
struct Stretches {
  std::vector<int64_t> held;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> of;  // by value: [first, last] stretches
};

Stretches stretches_of(std::span<const int64_t> held, std::span<const RematerializableValue> values) {
  std::vector<int32_t> begins = {0};
  for (const RematerializableValue& value : values)
    for (const auto& [first, last] : value.moments) {
      begins.push_back(first);
      begins.push_back(last + 1);
    }
  std::ranges::sort(begins);
  begins.erase(std::ranges::unique(begins).begin(), begins.end());
  std::erase_if(begins, [&](int32_t at) { return at >= static_cast<int32_t>(held.size()); });
  Stretches all;
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto begin = held.begin() + begins[i];
    const auto end = i + 1 < begins.size() ? held.begin() + begins[i + 1] : held.end();
    all.held.push_back(begin == end ? 0 : *std::max_element(begin, end));
  }
  const auto stretch = [&](int32_t moment) {
    return static_cast<int32_t>(std::ranges::upper_bound(begins, moment) - begins.begin()) - 1;
  };
  for (const RematerializableValue& value : values) {
    auto& mine = all.of.emplace_back();
    for (const auto& [first, last] : value.moments) mine.emplace_back(stretch(first), stretch(last));
  }
  return all;
}

class RematerializationSearch {
 public:
  RematerializationSearch(std::span<const int64_t> held, std::span<const double> works,
                          std::span<const RematerializableValue> values, int64_t budget)
      : values_(values), works_(works), stretches_(stretches_of(held, values)), budget_(budget) {
    for (const auto& mine : stretches_.of) {
      int64_t length = 0;
      for (const auto& [first, last] : mine) length += last - first + 1;
      length_.push_back(length);
    }
  }

  std::optional<Rematerialization> run() {
    std::optional<Rematerialization> best;
    for (const Rule rule : {Rule::kCapped, Rule::kRatio, Rule::kCost}) {
      reset();
      if (!cover(rule)) return std::nullopt;
      improve();
      if (!best || seconds_ < best->seconds) best = Rematerialization{released_, seconds_, false};
    }
    constexpr size_t kFew = 22;
    if (values_.size() <= kFew) {
      reset();
      best_seconds_ = best->seconds;
      order_.resize(values_.size());
      std::iota(order_.begin(), order_.end(), size_t{0});
      std::ranges::stable_sort(order_,
                               [&](size_t a, size_t b) { return values_[a].bytes > values_[b].bytes; });
      branch(0);
      if (!best_released_.empty()) best = Rematerialization{best_released_, best_seconds_, false};
      best->proved = steps_ < kMostSteps;
    }
    return best;
  }

 private:
  enum class Rule : uint8_t { kCapped, kRatio, kCost };
  static constexpr int64_t kMostSteps = 200'000;

  void reset() {
    now_ = stretches_.held;
    released_.assign(values_.size(), false);
    uses_.assign(works_.size(), 0);
    seconds_ = 0;
  }

  void put(size_t v, bool released) {
    const int64_t bytes = released ? -values_[v].bytes : values_[v].bytes;
    for (const auto& [first, last] : stretches_.of[v])
      for (int32_t s = first; s <= last; ++s) now_[static_cast<size_t>(s)] += bytes;
    for (const int32_t work : values_[v].works) {
      int32_t& uses = uses_[static_cast<size_t>(work)];
      if (released && uses++ == 0) seconds_ += works_[static_cast<size_t>(work)];
      if (!released && --uses == 0) seconds_ -= works_[static_cast<size_t>(work)];
    }
    released_[v] = released;
  }

  double seconds_of(size_t v) const {  // in addition to chosen computations
    double sum = 0;
    for (const int32_t work : values_[v].works)
      if (uses_[static_cast<size_t>(work)] == 0) sum += works_[static_cast<size_t>(work)];
    return sum;
  }

  double seconds_saved(size_t v) const {
    double sum = 0;
    for (const int32_t work : values_[v].works)
      if (uses_[static_cast<size_t>(work)] == 1) sum += works_[static_cast<size_t>(work)];
    return sum;
  }

  bool covers(size_t v, int32_t stretch) const {
    return std::ranges::any_of(stretches_.of[v],
                               [&](const auto& it) { return it.first <= stretch && stretch <= it.second; });
  }

  bool fits() const {
    return std::ranges::all_of(now_, [&](int64_t bytes) { return bytes <= budget_; });
  }

  // The worst stretch first; of its values the
  // cheapest by the rule; ties: the one freed longest.
  bool cover(Rule rule) {
    for (;;) {
      const auto worst = static_cast<int32_t>(std::ranges::max_element(now_) - now_.begin());
      const int64_t excess = now_[static_cast<size_t>(worst)] - budget_;
      if (excess <= 0) return true;
      size_t best = values_.size();
      double best_score = 0;
      for (size_t v = 0; v < values_.size(); ++v) {
        if (released_[v] || values_[v].bytes <= 0 || !covers(v, worst)) continue;
        const auto bytes = static_cast<double>(values_[v].bytes);
        const double seconds = seconds_of(v);
        const double score = rule == Rule::kCost    ? seconds
                             : rule == Rule::kRatio ? seconds / bytes
                                                    : seconds / std::min(bytes, static_cast<double>(excess));
        if (best == values_.size() || score < best_score * (1 - 1e-9) ||
            (score <= best_score * (1 + 1e-9) && length_[v] > length_[best]))
          best = v, best_score = score;
      }
      if (best == values_.size()) return false;
      put(best, true);
    }
  }

  // Restores values, most expensive first; then exchanges one for a cheaper one.
  void improve() {
    take_back();
    constexpr size_t kMany = 400;
    if (values_.size() > kMany) return;
    for (bool better = true; better;) {
      better = false;
      for (size_t v = 0; v < values_.size(); ++v) {
        if (!released_[v]) continue;
        const double before = seconds_;
        put(v, false);
        size_t best = values_.size();
        double best_seconds = before * (1 - 1e-9);
        for (size_t other = 0; other < values_.size(); ++other) {
          if (released_[other] || other == v || values_[other].bytes <= 0) continue;
          if (seconds_ + seconds_of(other) >= best_seconds) continue;
          put(other, true);
          if (fits()) best = other, best_seconds = seconds_;
          put(other, false);
        }
        put(best == values_.size() ? v : best, true);
        better = better || best != values_.size();
      }
      if (better) take_back();
    }
  }

  void take_back() {
    std::vector<size_t> order;
    for (size_t v = 0; v < values_.size(); ++v)
      if (released_[v]) order.push_back(v);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return seconds_saved(a) > seconds_saved(b); });
    for (const size_t v : order) {
      put(v, false);
      if (!fits()) put(v, true);
    }
  }

  void branch(size_t depth) {
    if (++steps_ >= kMostSteps || seconds_ >= best_seconds_ * (1 - 1e-12)) return;
    const auto worst = static_cast<int32_t>(std::ranges::max_element(now_) - now_.begin());
    int64_t excess = now_[static_cast<size_t>(worst)] - budget_;
    if (excess <= 0) {
      best_seconds_ = seconds_;
      best_released_ = released_;
      return;
    }
    for (size_t i = depth; i < order_.size(); ++i)
      if (covers(order_[i], worst)) excess -= values_[order_[i]].bytes;
    if (excess > 0 || depth == order_.size()) return;
    put(order_[depth], true);
    branch(depth + 1);
    put(order_[depth], false);
    branch(depth + 1);
  }

  std::span<const RematerializableValue> values_;
  std::span<const double> works_;
  const Stretches stretches_;
  const int64_t budget_;
  std::vector<int64_t> length_;  // by value: stretches it covers
  std::vector<int64_t> now_;     // by stretch: held bytes
  std::vector<bool> released_;
  std::vector<int32_t> uses_;  // by computation
  double seconds_ = 0;
  std::vector<size_t> order_;
  std::vector<bool> best_released_;
  double best_seconds_ = 0;
  int64_t steps_ = 0;
};

}  // namespace

std::optional<Rematerialization> choose_rematerialization(std::span<const int64_t> held,
                                                          std::span<const double> works,
                                                          std::span<const RematerializableValue> values,
                                                          int64_t budget) {
  return RematerializationSearch(held, works, values, budget).run();
}

double rematerialization_bound_s(int64_t excess, std::span<const std::pair<int64_t, double>> values) {
  std::vector<std::pair<int64_t, double>> order(values.begin(), values.end());
  std::erase_if(order, [](const auto& it) { return it.first <= 0; });
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return a.second * static_cast<double>(b.first) < b.second * static_cast<double>(a.first);
  });
  double seconds = 0;
  for (const auto& [bytes, each] : order) {
    if (excess <= 0) break;
    const double share = std::min(1.0, static_cast<double>(excess) / static_cast<double>(bytes));
    seconds += share * each;
    excess -= bytes;
  }
  return excess > 0 ? INFINITY : seconds;
}

}  // namespace tessera
