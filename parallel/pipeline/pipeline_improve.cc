#include "parallel/pipeline/pipeline_improve.h"

#include <algorithm>
#include <array>

namespace tessera {

namespace {

class Improver {
 public:
  Improver(PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        shape_(schedule.shape),
        costs_(costs),
        cells_(static_cast<size_t>(shape_.stages()) * static_cast<size_t>(shape_.micro_batches)) {}

  void run(int32_t evaluations) {
    constexpr size_t kReaches[] = {1, 2, 3, 4, 6};
    Score best = score();
    for (bool better = true; better && evaluations > 0;) {
      better = false;
      for (size_t d = 0; d < schedule_.devices.size(); ++d)
        for (const size_t reach : kReaches)
          for (size_t i = 0; i + reach < schedule_.devices[d].size(); ++i)
            for (const bool later : {false, true}) {
              if (evaluations <= 0 || !may_move(d, i, reach, later)) continue;
              --evaluations;
              better = try_move(d, i, reach, later, best) || better;
            }
    }
  }

 private:
  struct Score {
    double longest = 0, sum = 0;
    bool finishes = true;
  };

  bool try_move(size_t device, size_t i, size_t reach, bool later, Score& best) {
    move(device, i, reach, later);
    const Score now = fits(device) ? score() : Score{0, 0, false};
    constexpr double kEpsilon = 1e-9;
    if (now.finishes && (now.longest < best.longest - kEpsilon ||
                         (now.longest <= best.longest + kEpsilon && now.sum < best.sum - kEpsilon))) {
      best = now;
      return true;
    }
    move(device, i, reach, !later);
    return false;
  }

  // The first of the run [i, i + reach] goes to its end, or the last to its beginning.
  void move(size_t device, size_t i, size_t reach, bool later) {
    const auto begin = schedule_.devices[device].begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = begin + static_cast<std::ptrdiff_t>(reach) + 1;
    std::rotate(begin, later ? begin + 1 : end - 1, end);
  }

  // Micro-batches stay in order, and so do the actions of one.
  bool may_move(size_t device, size_t i, size_t reach, bool later) const {
    const std::vector<PipelineAction>& actions = schedule_.devices[device];
    const size_t moved = later ? i : i + reach;
    for (size_t k = i; k <= i + reach; ++k)
      if (k != moved && actions[k].stage == actions[moved].stage &&
          (actions[k].work == actions[moved].work || actions[k].micro_batch == actions[moved].micro_batch))
        return false;
    return true;
  }

  bool fits(size_t device) const {
    int32_t live = 0;
    for (const PipelineAction& action : schedule_.devices[device]) {
      live += action.work == PipelineWork::kForward;
      live -= action.work == PipelineWork::kBackwardWeight;
      if (live > live_bound(shape_, static_cast<int32_t>(device))) return false;
    }
    return true;
  }

  // When `action` may begin; negative while something that it reads is not there.
  double ready(const PipelineAction& action) const {
    const auto done = [&](PipelineWork work, int32_t stage) {
      const double at = done_[static_cast<size_t>(work) * cells_ +
                              static_cast<size_t>(stage) * static_cast<size_t>(shape_.micro_batches) +
                              static_cast<size_t>(action.micro_batch)];
      return at < 0 || shape_.device_of(stage) == shape_.device_of(action.stage) ? at : at + costs_.comm;
    };
    if (action.work == PipelineWork::kForward)
      return action.stage == 0 ? 0 : done(PipelineWork::kForward, action.stage - 1);
    if (action.work == PipelineWork::kBackwardWeight) return done(PipelineWork::kBackwardInput, action.stage);
    const double own = done(PipelineWork::kForward, action.stage);
    if (own < 0 || action.stage + 1 == shape_.stages()) return own;
    const double above = done(PipelineWork::kBackwardInput, action.stage + 1);
    return above < 0 ? above : std::max(own, above);
  }

  // The replay, without its checks and without allocations.
  Score score() {
    const size_t devices = schedule_.devices.size();
    const std::array<double, 3> took = {costs_.forward, costs_.backward_input, costs_.backward_weight};
    done_.assign(3 * cells_, -1);
    next_.assign(devices, 0);
    now_.assign(devices, 0);
    first_.assign(devices, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t d = 0; d < devices; ++d)
        for (; next_[d] < schedule_.devices[d].size(); ++next_[d]) {
          const PipelineAction& action = schedule_.devices[d][next_[d]];
          const double from = ready(action);
          if (from < 0) break;
          const double begin = std::max(from, now_[d]);
          if (next_[d] == 0) first_[d] = begin;
          const auto work = static_cast<size_t>(action.work);
          now_[d] = begin + took[work];
          done_[work * cells_ +
                static_cast<size_t>(action.stage) * static_cast<size_t>(shape_.micro_batches) +
                static_cast<size_t>(action.micro_batch)] = now_[d];
          moved = true;
        }
    }
    Score result;
    for (size_t d = 0; d < devices; ++d) {
      result.finishes = result.finishes && next_[d] == schedule_.devices[d].size();
      result.longest = std::max(result.longest, now_[d] - first_[d]);
      result.sum += now_[d] - first_[d];
    }
    return result;
  }

  PipelineSchedule& schedule_;
  const PipelineShape& shape_;
  const PipelineCosts& costs_;
  const size_t cells_;
  std::vector<double> done_;         // by work, stage and micro-batch
  std::vector<double> now_, first_;  // by device
  std::vector<size_t> next_;
};

}  // namespace

void improve(PipelineSchedule& schedule, const PipelineCosts& costs, int32_t evaluations) {
  if (schedule.shape.splits_backward()) Improver(schedule, costs).run(evaluations);
}

}  // namespace tessera
