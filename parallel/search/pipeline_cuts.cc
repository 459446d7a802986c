// The optimum lies on the frontier of (sum, pace). It is walked from the smallest sum on: each dynamic
// program finds the smallest sum with every stage's pace below the largest so far. The walk ends when even
// the smallest possible pace could not make up for the sum.
#include "parallel/search/pipeline_cuts.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr StagePrice kImpossible = {INFINITY, INFINITY};

// How many blocks a stage may have.
struct Counts {
  size_t least = 1, most = 0;
};

// Prices by stage and number of blocks; counts outside those of the stage are neither stored nor looked at.
class Prices {
 public:
  explicit Prices(std::vector<Counts> counts) : counts_(std::move(counts)) {
    size_t size = 0;
    for (const Counts& stage : counts_) {
      offsets_.push_back(size);
      size += stage.most + 1 - stage.least;
    }
    prices_.assign(size, kImpossible);
  }
  StagePrice& at(size_t stage, size_t blocks) {
    return prices_[offsets_[stage] + blocks - counts_[stage].least];
  }
  const std::vector<Counts>& counts() const { return counts_; }

 private:
  std::vector<Counts> counts_;
  std::vector<size_t> offsets_;
  std::vector<StagePrice> prices_;
};

class Cuts {
 public:
  Cuts(size_t blocks, Prices& prices) : n_(blocks), stages_(prices.counts().size()), prices_(prices) {
    narrow(INFINITY);
  }

  Result<PipelineCuts> solve() {
    const double least = least_pace();
    if (std::isinf(least))
      return Status(StatusCode::kOutOfMemory, format("no cut of {} blocks into {} stages fits", n_, stages_));
    // The cut with the smallest pace comes first: where stages alike make every sum the same, to the last
    // bits, nothing is left to walk.
    constexpr double kRounding = 1e-12;
    PipelineCuts best, step;
    least_sum(std::nextafter(least, INFINITY), best);
    best.time_s = best.once_s + best.pace_s;
    int64_t solved = 1;
    for (double limit = INFINITY; least_sum(limit, step); limit = step.pace_s) {
      ++solved;
      step.time_s = step.once_s + step.pace_s;
      if (step.time_s < best.time_s) best = step;
      if (step.once_s + least >= (1 - kRounding) * best.time_s) break;
    }
    best.solved = solved;
    return best;
  }

 private:
  // Which counts stages have with every pace below `limit`, and where they can begin: what those before them
  // and those from them on can have.
  void narrow(double limit) {
    counts_ = prices_.counts();
    size_t all = 0;
    for (size_t s = 0; s < stages_; ++s) {
      Counts& stage = counts_[s];
      while (stage.most > stage.least && !(prices_.at(s, stage.most).pace_s < limit)) --stage.most;
      all += stage.most;
    }
    for (size_t s = 0; s < stages_ && all >= n_; ++s)
      counts_[s].least = std::max(counts_[s].least, counts_[s].most - std::min(counts_[s].most, all - n_));
    least_begin_.assign(stages_ + 1, 0);
    most_begin_ = least_begin_;
    for (size_t s = 0; s < stages_; ++s) {
      least_begin_[s + 1] = least_begin_[s] + counts_[s].least;
      most_begin_[s + 1] = std::min(n_, most_begin_[s] + counts_[s].most);
    }
    size_t least = 0, most = 0;
    for (size_t s = stages_ + 1; s-- > 0;) {
      if (s < stages_) least += counts_[s].least, most = std::min(n_, most + counts_[s].most);
      least_begin_[s] = std::max(least_begin_[s], n_ - most);
      most_begin_[s] = least > n_ ? 0 : std::min(most_begin_[s], n_ - least);
    }
  }

  // The smallest possible largest pace.
  double least_pace() {
    std::vector<double> next(n_ + 1, INFINITY), now;
    next[n_] = -INFINITY;
    for (size_t s = stages_; s-- > 0;) {
      now.assign(n_ + 1, INFINITY);
      for (size_t begin = least_begin_[s]; begin <= most_begin_[s]; ++begin)
        for (size_t end = first_end(s, begin); end <= last_end(s, begin); ++end)
          now[begin] = std::min(now[begin], std::max(prices_.at(s, end - begin).pace_s, next[end]));
      next.swap(now);
    }
    return next[0];
  }

  // The smallest sum with every pace below `limit`; of equal sums the one with the smaller pace. False when
  // none is.
  bool least_sum(double limit, PipelineCuts& cuts) {
    narrow(limit);
    struct Best {
      double sum = INFINITY, pace = -INFINITY;
      size_t end = 0;
    };
    std::vector<size_t> offsets = {0};
    for (size_t s = 0; s <= stages_; ++s) {
      if (most_begin_[s] < least_begin_[s]) return false;
      offsets.push_back(offsets[s] + most_begin_[s] + 1 - least_begin_[s]);
    }
    std::vector<Best> best(offsets.back());
    best[offsets[stages_] + n_ - least_begin_[stages_]].sum = 0;
    for (size_t s = stages_; s-- > 0;)
      for (size_t begin = least_begin_[s]; begin <= most_begin_[s]; ++begin) {
        Best& here = best[offsets[s] + begin - least_begin_[s]];
        for (size_t end = first_end(s, begin); end <= last_end(s, begin); ++end) {
          const StagePrice& stage = prices_.at(s, end - begin);
          const Best& rest = best[offsets[s + 1] + end - least_begin_[s + 1]];
          const double sum = stage.once_s + rest.sum, pace = std::max(stage.pace_s, rest.pace);
          if (!(stage.pace_s < limit) || std::isinf(sum)) continue;
          if (sum < here.sum || (sum == here.sum && pace < here.pace)) here = {sum, pace, end};
        }
      }
    if (std::isinf(best[0].sum)) return false;
    cuts.once_s = best[0].sum;
    cuts.pace_s = best[0].pace;
    cuts.first.clear();
    for (size_t s = 0, begin = 0; s < stages_; ++s) {
      cuts.first.push_back(static_cast<int64_t>(begin));
      begin = best[offsets[s] + begin - least_begin_[s]].end;
    }
    return true;
  }

  size_t first_end(size_t s, size_t begin) const {
    return std::max(begin + counts_[s].least, least_begin_[s + 1]);
  }
  size_t last_end(size_t s, size_t begin) const {
    return std::min(begin + counts_[s].most, most_begin_[s + 1]);
  }

  const size_t n_, stages_;
  Prices& prices_;
  std::vector<Counts> counts_;
  std::vector<size_t> least_begin_, most_begin_;
};

Status check(int64_t blocks, int32_t stages) {
  if (stages >= 1 && blocks >= stages) return {};
  return Status(StatusCode::kInvalidArgument,
                format("pipeline cuts: found {} blocks for {} stages, wanted at least one block a stage",
                       blocks, stages));
}

}  // namespace

namespace {

// Stages that take no less with more blocks.
class GrowingStages {
 public:
  GrowingStages(int64_t blocks, int32_t stages, int64_t least, const StageFloor& floor,
                const std::function<bool(int32_t)>& as_before)
      : blocks_(blocks),
        least_(least),
        floor_(floor),
        most_(static_cast<size_t>(stages), blocks - least * (stages - 1)) {
    for (int32_t s = 0; s < stages; ++s) alike_.push_back(s > 0 && as_before && as_before(s));
  }

  // The most blocks that stages have in `limit` seconds; by how many those are more than all, and negative
  // where they are fewer.
  int64_t within(double limit, std::vector<int64_t>& found) const {
    int64_t sum = -blocks_;
    found.assign(most_.size(), 0);
    for (size_t s = 0; s < most_.size(); ++s) {
      found[s] = alike_[s] ? found[s - 1] : most_within(s, limit, s > 0 ? found[s - 1] : (most_[s] + 1) / 2);
      if (found[s] < least_) return -1;
      sum += found[s];
    }
    return sum;
  }

  // From now on no stage has more.
  void keep(const std::vector<int64_t>& most) { most_ = most; }
  const std::vector<int64_t>& most() const { return most_; }

  double slowest(const std::vector<int64_t>& counts) const {
    double slowest = 0;
    for (size_t s = 0; s < counts.size(); ++s)
      if (!alike_[s] || counts[s] != counts[s - 1])
        slowest = std::max(slowest, floor_(static_cast<int32_t>(s), counts[s]));
    return slowest;
  }

  // The cut whose slowest stage is least slow; the stages can have all blocks.
  std::vector<int64_t> balanced() const {
    std::vector<int64_t> best = most_, held;
    double low = 0, high = slowest(most_);
    for (int i = 0; i < 60 && low < high * (1 - 1e-9); ++i) {
      const double middle = (low + high) / 2;
      if (within(middle, held) >= 0)
        high = middle, best = held;
      else
        low = middle;
    }
    trim(best);
    // Nearly the least is not yet the least.
    while (within(std::nextafter(slowest(best), 0), held) >= 0) best = held, trim(best);
    return best;
  }

  // Takes what is more than all. Rounds of one block less each would be even; the last stages first, by as
  // much as that comes to.
  void trim(std::vector<int64_t>& counts) const {
    int64_t over = -blocks_;
    for (const int64_t n : counts) over += n;
    const auto stages = static_cast<int64_t>(counts.size());
    while (over > 0)
      for (size_t s = counts.size(); s-- > 0 && over > 0;) {
        const int64_t less = std::min({counts[s] - least_, over, std::max<int64_t>(1, over / stages)});
        counts[s] -= less, over -= less;
      }
  }

 private:
  // Stages that differ little hold about as much: from `guess` on, in steps that double.
  int64_t most_within(size_t s, double limit, int64_t guess) const {
    const auto may = [&](int64_t n) {
      if (n < least_) return true;
      const double least = floor_(static_cast<int32_t>(s), n);
      return !std::isinf(least) && least <= limit;
    };
    int64_t low = 0, high = most_[s];
    guess = std::min(guess, high);
    if (may(guess)) {
      low = guess;
      for (int64_t step = 1; low < high; step *= 2) {
        const int64_t n = std::min(high, low + step);
        if (!may(n)) {
          high = n - 1;
          break;
        }
        low = n;
      }
    } else {
      high = guess - 1;
      for (int64_t step = 1; low < high; step *= 2) {
        const int64_t n = std::max(low + 1, high - step + 1);
        if (may(n)) {
          low = n;
          break;
        }
        high = n - 1;
      }
    }
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      const bool fine = may(middle);
      (fine ? low : high) = fine ? middle : middle - 1;
    }
    return low;
  }

  const int64_t blocks_, least_;
  const StageFloor& floor_;
  std::vector<int64_t> most_;
  std::vector<bool> alike_;
};

PipelineCuts cut_at(const std::vector<int64_t>& counts) {
  PipelineCuts cuts;
  int64_t begin = 0;
  for (const int64_t n : counts) cuts.first.push_back(begin), begin += n;
  return cuts;
}

// Leaves `stages` with no more than they hold, and in less than `most_s`. False where that is too few, with
// what is to be said of it.
bool narrowed(GrowingStages& stages, int64_t blocks, double most_s, Result<PipelineCuts>& answer) {
  std::vector<int64_t> held;
  if (stages.within(INFINITY, held) < 0) {
    answer = Status(StatusCode::kOutOfMemory,
                    format("no cut of {} blocks into {} stages fits", blocks, stages.most().size()));
    return false;
  }
  stages.keep(held);
  PipelineCuts none;
  none.time_s = none.pace_s = most_s;
  answer = none;
  if (std::isinf(most_s)) return true;
  if (stages.within(most_s, held) < 0) return false;
  stages.keep(held);
  return true;
}

}  // namespace

Result<PipelineCuts> cut_growing_blocks(int64_t blocks, int32_t stages, const EqualStageCost& cost,
                                        const StageFloor& floor, double most_s,
                                        const std::function<bool(int32_t)>& as_before) {
  TSR_RETURN_IF_ERROR(check(blocks, stages));
  GrowingStages growing(blocks, stages, 1, floor, as_before);
  Result<PipelineCuts> none = PipelineCuts();
  if (!narrowed(growing, blocks, most_s, none)) return none;
  const std::vector<int64_t> balanced = growing.balanced();
  PipelineCuts cuts = cut_at(balanced);
  cuts.pace_s = -INFINITY;
  for (size_t s = 0; s < balanced.size(); ++s) {
    const StagePrice price = cost(static_cast<int32_t>(s), balanced[s]);
    cuts.once_s += price.once_s, cuts.pace_s = std::max(cuts.pace_s, price.pace_s);
  }
  // Some stage of any cut is as slow; often that says it all.
  cuts.time_s = growing.slowest(balanced);
  const double taken = std::max(cuts.once_s + cuts.pace_s, cuts.time_s);
  if (taken <= (1 + 2e-9) * cuts.time_s) return cuts.time_s < most_s || std::isinf(most_s) ? cuts : none;
  const double enough = std::min(most_s, (1 + 1e-9) * taken);
  std::vector<int64_t> held;
  const int64_t spare = growing.within(enough, held);
  if (spare < 0) return none;
  std::vector<Counts> counts;
  for (const int64_t n : held)
    counts.push_back({static_cast<size_t>(std::max<int64_t>(1, n - spare)), static_cast<size_t>(n)});
  Prices prices(counts);
  for (size_t s = 0; s < counts.size(); ++s)
    for (size_t n = counts[s].least; n <= counts[s].most; ++n)
      prices.at(s, n) = cost(static_cast<int32_t>(s), static_cast<int64_t>(n));
  auto solved = Cuts(static_cast<size_t>(blocks), prices).solve();
  return (solved.ok() && solved->time_s < most_s) || std::isinf(most_s) ? solved : none;
}

Result<PipelineCuts> cut_to_least_pace(int64_t blocks, int32_t stages, int64_t least, const StageFloor& pace,
                                       double most_s, const std::function<bool(int32_t)>& as_before) {
  TSR_RETURN_IF_ERROR(check(blocks / std::max<int64_t>(1, least), stages));
  GrowingStages growing(blocks, stages, least, pace, as_before);
  Result<PipelineCuts> none = PipelineCuts();
  if (!narrowed(growing, blocks, most_s, none)) return none;
  const std::vector<int64_t> balanced = growing.balanced();
  PipelineCuts cuts = cut_at(balanced);
  cuts.pace_s = cuts.time_s = growing.slowest(balanced);
  return cuts.time_s < most_s || std::isinf(most_s) ? cuts : none;
}

}  // namespace tessera
