// With multiplier l >= 0 on bytes, and a, c the neighbours on the lower convex hull around the average
// budget, l = (t_a - t_c) / (m_c - m_a), any solution costs
//   sum n_s t_s = [n (t_a + l m_a) - l M] + sum n_s r_s + l (unused bytes),   r_s = t_s + l m_s - (t_a + l
//   m_a) >= 0.
// The bracket is the relaxed optimum. So choices other than a and c appear only while their r add up to less
// than the incumbent's distance from it; what remains is split between a and c in closed form.
#include "parallel/search/repeated_blocks.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/search/frontier.h"

namespace tessera {

namespace {

constexpr int64_t kMostNodes = 20'000'000;

class Core {
 public:
  Core(const Frontier& points, int64_t blocks, int64_t budget)
      : points_(points), blocks_(blocks), budget_(budget) {}

  // The smallest point times blocks fits.
  RepeatedBlocks solve() {
    RepeatedBlocks best;
    best.counts.assign(points_.size(), 0);
    if (points_.back().bytes * blocks_ <= budget_) {
      best.counts.back() = blocks_;
      best.time_s = best.bound_s = static_cast<double>(blocks_) * points_.back().time_s;
      best.bytes = blocks_ * points_.back().bytes;
      return best;
    }
    const std::vector<size_t> hull = lower_hull(points_);
    size_t at = 0;
    while (points_[hull[at + 1]].bytes * blocks_ <= budget_) ++at;
    a_ = hull[at], c_ = hull[at + 1];
    const Tradeoff &a = points_[a_], &c = points_[c_];
    const double price = (a.time_s - c.time_s) / static_cast<double>(c.bytes - a.bytes);
    bound_ =
        static_cast<double>(blocks_) * a.time_s - price * static_cast<double>(budget_ - blocks_ * a.bytes);
    for (size_t s = 0; s < points_.size(); ++s) {
      if (s == a_ || s == c_) continue;
      const double reduced =
          points_[s].time_s - a.time_s + price * static_cast<double>(points_[s].bytes - a.bytes);
      others_.push_back({std::max(0.0, reduced), s});
    }
    std::ranges::sort(others_, [](const Other& x, const Other& y) {
      return x.reduced != y.reduced ? x.reduced < y.reduced : x.point < y.point;
    });
    counts_.assign(points_.size(), 0);
    best_time_ = INFINITY;
    visit(0, blocks_, budget_, 0, 0);
    best.counts = best_counts_;
    best.time_s = 0;
    for (size_t s = 0; s < points_.size(); ++s) {
      best.time_s += static_cast<double>(best_counts_[s]) * points_[s].time_s;
      best.bytes += best_counts_[s] * points_[s].bytes;
    }
    best.proved = nodes_ < kMostNodes;
    best.bound_s = best.proved ? best.time_s : std::min(bound_, best.time_s);
    return best;
  }

 private:
  struct Other {
    double reduced;
    size_t point;
  };

  // `left` blocks and `room` bytes are open; the rest costs `time` and has `reduced` above the relaxed
  // optimum.
  void visit(size_t from, int64_t left, int64_t room, double time, double reduced) {
    if (++nodes_ >= kMostNodes) return;
    close(left, room, time);
    if (left == 0) return;
    for (size_t i = from; i < others_.size(); ++i) {
      const Tradeoff& point = points_[others_[i].point];
      if (bound_ + reduced + others_[i].reduced >= best_time_ - slack())
        break;  // sorted: the rest is no better
      if (room - point.bytes < (left - 1) * points_.front().bytes) continue;
      ++counts_[others_[i].point];
      visit(i, left - 1, room - point.bytes, time + point.time_s, reduced + others_[i].reduced);
      --counts_[others_[i].point];
    }
  }

  void close(int64_t left, int64_t room, double time) {
    const Tradeoff &a = points_[a_], &c = points_[c_];
    const int64_t spare = room - left * a.bytes;
    if (spare < 0) return;
    const int64_t fast = std::min(left, spare / (c.bytes - a.bytes));
    const double total =
        time + static_cast<double>(fast) * c.time_s + static_cast<double>(left - fast) * a.time_s;
    if (total >= best_time_) return;
    best_time_ = total;
    best_counts_ = counts_;
    best_counts_[a_] += left - fast;
    best_counts_[c_] += fast;
  }

  // Differences that rounding alone makes are not worth a search.
  double slack() const { return 1e-12 * std::abs(best_time_); }

  const Frontier& points_;
  const int64_t blocks_, budget_;
  size_t a_ = 0, c_ = 0;
  double bound_ = 0, best_time_ = 0;
  std::vector<Other> others_;
  std::vector<int64_t> counts_, best_counts_;
  int64_t nodes_ = 0;
};

}  // namespace

Result<RepeatedBlocks> solve_repeated_blocks(std::span<const BlockChoice> choices, int64_t blocks,
                                             int64_t budget) {
  if (choices.empty() || blocks < 0)
    return Status(StatusCode::kInvalidArgument, format("repeated blocks: found {} choices and {} blocks, "
                                                       "wanted at least one choice and no negative count",
                                                       choices.size(), blocks));
  std::vector<int64_t> levels;
  for (const BlockChoice& choice : choices) levels.push_back(choice.transient_bytes);
  std::ranges::sort(levels);
  levels.erase(std::ranges::unique(levels).begin(), levels.end());
  RepeatedBlocks best;
  best.time_s = INFINITY;
  double bound = INFINITY;
  bool proved = true;
  int64_t least = INT64_MAX;
  for (const int64_t level : levels) {
    std::vector<Tradeoff> points;
    for (size_t s = 0; s < choices.size(); ++s)
      if (choices[s].transient_bytes <= level)
        points.push_back({choices[s].time_s, choices[s].bytes, static_cast<int64_t>(s)});
    const Frontier kept = frontier(std::move(points));
    const int64_t needed = blocks * kept.front().bytes + (blocks > 0 ? level : 0);
    least = std::min(least, needed);
    if (needed > budget) continue;
    const RepeatedBlocks one = Core(kept, blocks, budget - level).solve();
    proved = proved && one.proved;
    bound = std::min(bound, one.bound_s);
    if (one.time_s >= best.time_s) continue;
    best = one;
    best.counts.assign(choices.size(), 0);
    int64_t transient = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto choice = static_cast<size_t>(kept[i].tag);
      best.counts[choice] = one.counts[i];
      if (one.counts[i] > 0) transient = std::max(transient, choices[choice].transient_bytes);
    }
    best.bytes += transient;
  }
  if (std::isinf(best.time_s))
    return Status(StatusCode::kOutOfMemory,
                  format("{} blocks need at least {} ({} bytes), {} bytes are given", blocks,
                         bytes_text(least), least, budget));
  best.proved = proved;
  best.bound_s = bound;
  return best;
}

}  // namespace tessera
