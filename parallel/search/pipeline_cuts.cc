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

// Prices by (stage, begin, end), or by (stage, count) for equal blocks.
class Prices {
 public:
  Prices(size_t blocks, size_t stages, bool equal) : n_(blocks), equal_(equal) {
    prices_.assign(stages * (blocks + 1) * (equal ? 1 : blocks + 1), kImpossible);
  }
  StagePrice& at(size_t stage, size_t begin, size_t end) {
    return equal_ ? prices_[stage * (n_ + 1) + end - begin]
                  : prices_[(stage * (n_ + 1) + begin) * (n_ + 1) + end];
  }

 private:
  size_t n_;
  bool equal_;
  std::vector<StagePrice> prices_;
};

class Cuts {
 public:
  Cuts(size_t blocks, size_t stages, Prices& prices) : n_(blocks), stages_(stages), prices_(prices) {}

  Result<PipelineCuts> solve() {
    const double least = least_pace();
    if (std::isinf(least))
      return Status(StatusCode::kOutOfMemory, format("no cut of {} blocks into {} stages fits", n_, stages_));
    PipelineCuts best, step;
    best.time_s = INFINITY;
    int64_t solved = 0;
    for (double limit = INFINITY; least_sum(limit, step); limit = step.pace_s) {
      ++solved;
      step.time_s = step.once_s + step.pace_s;
      if (step.time_s < best.time_s) best = step;
      if (step.once_s + least >= best.time_s) break;
    }
    best.solved = solved;
    return best;
  }

 private:
  // The smallest possible largest pace.
  double least_pace() {
    std::vector<double> next(n_ + 1, INFINITY), now;
    next[n_] = -INFINITY;
    for (size_t s = stages_; s-- > 0;) {
      now.assign(n_ + 1, INFINITY);
      for (size_t begin = s; begin < n_; ++begin)
        for (size_t end = begin + 1; end <= n_; ++end)
          now[begin] = std::min(now[begin], std::max(prices_.at(s, begin, end).pace_s, next[end]));
      next.swap(now);
    }
    return next[0];
  }

  // The smallest sum with every pace below `limit`; of equal sums the one with the smaller pace. False when
  // none is.
  bool least_sum(double limit, PipelineCuts& cuts) {
    struct Best {
      double sum = INFINITY, pace = -INFINITY;
      size_t end = 0;
    };
    std::vector<Best> best((stages_ + 1) * (n_ + 1));
    best[stages_ * (n_ + 1) + n_].sum = 0;
    for (size_t s = stages_; s-- > 0;)
      for (size_t begin = s; begin < n_; ++begin) {
        Best& here = best[s * (n_ + 1) + begin];
        for (size_t end = begin + 1; end <= n_; ++end) {
          const StagePrice& stage = prices_.at(s, begin, end);
          const Best& rest = best[(s + 1) * (n_ + 1) + end];
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
      begin = best[s * (n_ + 1) + begin].end;
    }
    return true;
  }

  const size_t n_, stages_;
  Prices& prices_;
};

Status check(int64_t blocks, int32_t stages) {
  if (stages >= 1 && blocks >= stages) return {};
  return Status(StatusCode::kInvalidArgument,
                format("pipeline cuts: found {} blocks for {} stages, wanted at least one block a stage",
                       blocks, stages));
}

}  // namespace

Result<PipelineCuts> cut_pipeline(int64_t blocks, int32_t stages, const StageCost& cost) {
  TSR_RETURN_IF_ERROR(check(blocks, stages));
  const auto n = static_cast<size_t>(blocks), count = static_cast<size_t>(stages);
  Prices prices(n, count, false);
  for (size_t s = 0; s < count; ++s)
    for (size_t begin = s; begin < n; ++begin)
      for (size_t end = begin + 1; end + (count - 1 - s) <= n; ++end) {
        if ((s == 0 && begin > 0) || (s + 1 == count && end != n)) continue;
        prices.at(s, begin, end) =
            cost(static_cast<int32_t>(s), static_cast<int64_t>(begin), static_cast<int64_t>(end));
      }
  return Cuts(n, count, prices).solve();
}

Result<PipelineCuts> cut_equal_blocks(int64_t blocks, int32_t stages, const EqualStageCost& cost) {
  TSR_RETURN_IF_ERROR(check(blocks, stages));
  const auto n = static_cast<size_t>(blocks), count = static_cast<size_t>(stages);
  Prices prices(n, count, true);
  for (size_t s = 0; s < count; ++s)
    for (size_t k = 1; k + count - 1 <= n; ++k)
      prices.at(s, 0, k) = cost(static_cast<int32_t>(s), static_cast<int64_t>(k));
  return Cuts(n, count, prices).solve();
}

}  // namespace tessera
