// The optimum lies on the frontier of (sum, longest). It is walked from the smallest sum on: each dynamic
// program finds the smallest sum with every stage shorter than the longest so far. The walk ends when even
// the smallest possible longest stage could not make up for the sum.
#include "parallel/search/pipeline_cuts.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"

namespace tessera {

namespace {

class Cuts {
 public:
  Cuts(int64_t blocks, int32_t stages, const StageCost& cost)
      : n_(static_cast<size_t>(blocks)),
        stages_(static_cast<size_t>(stages)),
        cost_(stages_ * (n_ + 1) * (n_ + 1), INFINITY) {
    for (size_t s = 0; s < stages_; ++s)
      for (size_t begin = s; begin < n_; ++begin)
        for (size_t end = begin + 1; end + (stages_ - 1 - s) <= n_; ++end) {
          if (s == 0 && begin > 0) continue;
          if (s + 1 == stages_ && end != n_) continue;
          at(s, begin, end) =
              cost(static_cast<int32_t>(s), static_cast<int64_t>(begin), static_cast<int64_t>(end));
        }
  }

  // Smallest possible longest stage.
  double least_longest() {
    std::vector<double> next(n_ + 1, INFINITY), now;
    next[n_] = 0;
    for (size_t s = stages_; s-- > 0;) {
      now.assign(n_ + 1, INFINITY);
      for (size_t begin = 0; begin < n_; ++begin)
        for (size_t end = begin + 1; end <= n_; ++end)
          now[begin] = std::min(now[begin], std::max(at(s, begin, end), next[end]));
      next.swap(now);
    }
    return next[0];
  }

  // Smallest sum with every stage shorter than `limit`; of equal sums the shorter longest stage. False when
  // none is.
  bool solve(double limit, PipelineCuts& cuts) {
    struct Best {
      double sum = INFINITY, longest = INFINITY;
      size_t end = 0;
    };
    std::vector<Best> best((stages_ + 1) * (n_ + 1));
    best[stages_ * (n_ + 1) + n_] = {0, 0, n_};
    for (size_t s = stages_; s-- > 0;)
      for (size_t begin = 0; begin < n_; ++begin) {
        Best& here = best[s * (n_ + 1) + begin];
        for (size_t end = begin + 1; end <= n_; ++end) {
          const double stage = at(s, begin, end);
          const Best& rest = best[(s + 1) * (n_ + 1) + end];
          if (!(stage < limit) || std::isinf(rest.sum)) continue;
          const double sum = stage + rest.sum, longest = std::max(stage, rest.longest);
          if (sum < here.sum || (sum == here.sum && longest < here.longest)) here = {sum, longest, end};
        }
      }
    if (std::isinf(best[0].sum)) return false;
    cuts.sum_s = best[0].sum;
    cuts.longest_s = best[0].longest;
    cuts.first.clear();
    for (size_t s = 0, begin = 0; s < stages_; ++s) {
      cuts.first.push_back(static_cast<int64_t>(begin));
      begin = best[s * (n_ + 1) + begin].end;
    }
    return true;
  }

 private:
  double& at(size_t stage, size_t begin, size_t end) {
    return cost_[(stage * (n_ + 1) + begin) * (n_ + 1) + end];
  }

  const size_t n_, stages_;
  std::vector<double> cost_;
};

}  // namespace

Result<PipelineCuts> cut_pipeline(int64_t blocks, int32_t stages, int64_t micro_batches,
                                  const StageCost& cost) {
  if (stages < 1 || blocks < stages || micro_batches < 1)
    return Status(
        StatusCode::kInvalidArgument,
        format(
            "cut_pipeline: found {} blocks for {} stages and {} micro-batches, wanted at least one block a "
            "stage and one micro-batch",
            blocks, stages, micro_batches));
  Cuts cuts(blocks, stages, cost);
  const double least = cuts.least_longest();
  if (std::isinf(least))
    return Status(StatusCode::kOutOfMemory,
                  format("no cut of {} blocks into {} stages fits", blocks, stages));
  const double after = static_cast<double>(micro_batches - 1);
  PipelineCuts best, step;
  best.time_s = INFINITY;
  for (double limit = INFINITY; cuts.solve(limit, step); limit = step.longest_s) {
    ++best.solved;
    step.time_s = step.sum_s + after * step.longest_s;
    if (step.time_s < best.time_s) step.solved = best.solved, best = step;
    if (step.sum_s + after * least >= best.time_s) break;
  }
  return best;
}

}  // namespace tessera
