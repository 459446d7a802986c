// Bounds. For 1F1B with m micro-batches over p stages, the first backward pass of stage s ends no earlier
// than all stages' work W on one micro-batch, less what of the way back lies before s; with w = min(m, p - s)
// forward passes done by then, (m - w) forward and (m - 1) backward passes of t_s = f_s + b_s are still to
// come, and the way back:
//   T >= W + (m - 1) t_s - (w_s - 1) f_s   for every s.
// With f_s <= phi t_s and weights over s proportional to 1 / (m - 1 - (w_s - 1) phi):
//   T >= W (1 + 1 / sum_s 1 / (m - 1 - (w_s - 1) phi)).
// The first form is what cuts are optimal under; the second orders configurations before anything is solved.
#include "parallel/analytic/step_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "graph/base/text.h"
#include "parallel/analytic/block_ways.h"
#include "parallel/search/pipeline_cuts.h"
#include "parallel/search/repeated_blocks.h"

namespace tessera {

namespace {

StageBlocks blocks(int64_t count, Recompute way) { return blocks_of(count, {way, 0, 0}); }

}  // namespace

StageBlocks blocks_on(const FoundStep& found, int32_t device) {
  StageBlocks all;
  for (size_t v = 0; v < found.stages.size(); ++v) {
    if (device_of(found.plan, static_cast<int32_t>(v)) != device) continue;
    const StageBlocks& stage = found.stages[v];
    all.blocks += stage.blocks;
    all.full += stage.full;
    all.selective += stage.selective;
    for (size_t q = 0; q < all.offloaded.size(); ++q) all.offloaded[q] += stage.offloaded[q];
  }
  return all;
}

StepSolver::StepSolver(const TransformerShape& model, const Cluster& cluster,
                       const StepSearchOptions& options, const ForeignPlan& plan, int64_t limit)
    : model_(model),
      cluster_(cluster),
      options_(options),
      plan_(plan),
      times_(model, plan_, cluster),
      m_(options.global_batch / (plan.micro_batch * plan.data())),
      limit_(limit),
      after_(model, cluster, options, plan_, backward_share(times_, options, plan_)),
      ways_(recomputations(options, plan)) {
  for (const Recompute way : ways_)
    way_seconds_.push_back(seconds_of(times_.of(blocks(2, way), false, false)) -
                           seconds_of(times_.of(blocks(1, way), false, false)));
}

// Before anything is solved.
double StepSolver::bound() const {
  const Recompute least = ways_.front();
  const StagePasses middle = times_.of(blocks(1, least), false, false);
  const StagePasses first = times_.of({}, true, plan_.pp == 1), last = times_.of({}, false, true);
  const double block = way_seconds_.front();
  double work = static_cast<double>(model_.L) * block;
  double phi = middle.forward_s / (middle.forward_s + middle.backward_s);
  const auto add_end = [&](const StagePasses& end) {
    work += end.forward_s + end.backward_s;
    if (end.forward_s + end.backward_s > 0)
      phi = std::max(phi, end.forward_s / (end.forward_s + end.backward_s));
  };
  // Hosts that issue slower than devices compute make a stage's time no sum of its parts; then only the
  // parts count.
  add_end(first);
  if (plan_.pp > 1) add_end(last);
  const double m = static_cast<double>(m_);
  double pipeline = work * m / plan_.pp;
  if (plan_.virtual_stages == 1) {
    double weights = 0;
    for (int32_t s = 0; s < plan_.pp; ++s) {
      const double pace = m - 1 - static_cast<double>(std::min<int64_t>(m_, plan_.pp - s) - 1) * phi;
      weights += pace > 0 ? 1 / pace : INFINITY;
    }
    pipeline = std::max(pipeline, work * (1 + (std::isinf(weights) ? 0 : 1 / weights)));
  }
  return with_after(kBoundSlack * pipeline);
}

// kOutOfMemory when nothing fits.
Result<FoundStep> StepSolver::solve(double& bound_s, double most_s) const {
  if (plan_.virtual_stages > 1) return solve_interleaved(bound_s, most_s);
  FoundStep best;
  best.time.step_s = INFINITY;
  const auto m = static_cast<double>(m_);
  // All stages' passes come to as much at least.
  const StagePasses all = times_.of(blocks(model_.L, ways_.front()), true, true);
  const double work = kBoundSlack * (all.forward_s + all.backward_s);
  std::unordered_map<int64_t, StagePasses> known;
  const auto passes_of = [&](int32_t s, int64_t n) -> const StagePasses& {
    const auto [at, made] = known.try_emplace(s * (model_.L + 1) + n);
    if (!made) return at->second;
    const auto stage = fill(s, n);
    at->second.forward_s = INFINITY;
    if (stage) at->second = times_.of(*stage, s == 0, s + 1 == plan_.pp);
    return at->second;
  };
  for (const bool as_bound : {true, false}) {
    const auto price = [&](int32_t s, int64_t n) {
      const StagePasses& passes = passes_of(s, n);
      if (std::isinf(passes.forward_s)) return StagePrice{INFINITY, INFINITY};
      const double t = passes.forward_s + passes.backward_s;
      const double lead = as_bound ? static_cast<double>(in_flight(s) - 1) * passes.forward_s : 0;
      return StagePrice{t, (m - 1) * t - lead};
    };
    const auto floor = [&](int32_t s, int64_t n) {
      const StagePasses& passes = passes_of(s, n);
      if (std::isinf(passes.forward_s)) return static_cast<double>(INFINITY);
      return std::max(m * (passes.forward_s + passes.backward_s), price(s, n).pace_s + work);
    };
    TSR_ASSIGN_OR_RETURN(const PipelineCuts cuts,
                         cut_growing_blocks(model_.L, plan_.pp, price, floor, INFINITY));
    if (as_bound) bound_s = with_after(kBoundSlack * cuts.time_s);
    std::vector<StageBlocks> stages;
    for (int32_t s = 0; s < plan_.pp; ++s) {
      const int64_t end = s + 1 < plan_.pp ? cuts.first[static_cast<size_t>(s) + 1] : model_.L;
      stages.push_back(*fill(s, end - cuts.first[static_cast<size_t>(s)]));
    }
    TSR_ASSIGN_OR_RETURN(FoundStep found, finish(std::move(stages), most_s));
    if (found.time.step_s < best.time.step_s) best = std::move(found);
  }
  return best;
}

int64_t StepSolver::least_bytes(int32_t device, int64_t count) const {
  const int64_t flights = in_flight(device), chunks = plan_.virtual_stages;
  const auto kept = [&](Recompute way) {
    return (times_.activation_bytes(way) * flights + chunks - 1) / chunks;
  };
  int64_t least = INT64_MAX;
  for (const Recompute way : ways_) least = std::min(least, kept(way));
  return fixed_bytes(device, count) + count * least;
}

// Stages may be uneven; each has one block at least, and needs no less with more.
bool StepSolver::holds_all(int64_t limit) const {
  int64_t held = 0;
  for (int32_t s = 0; s < plan_.pp; ++s) {
    int64_t fits = 0, too_many = model_.L - plan_.pp + 2;
    while (too_many - fits > 1) {
      const int64_t count = fits + (too_many - fits) / 2;
      (least_bytes(s, count) <= limit ? fits : too_many) = count;
    }
    if (fits == 0) return false;
    held += fits;
  }
  return held >= model_.L;
}

int64_t StepSolver::least_limit(int64_t at_most) const {
  if (plan_.virtual_stages > 1) {
    int64_t most = 0;
    for (int32_t device = 0; device < plan_.pp; ++device)
      most = std::max(most, least_bytes(device, model_.L / plan_.pp));
    return std::min(most, at_most);
  }
  int64_t enough = 0, too_little = 0;
  for (int32_t s = 0; s < plan_.pp; ++s)
    enough = std::max(enough, least_bytes(s, (model_.L + plan_.pp - 1) / plan_.pp));
  if (at_most < enough) {
    if (!holds_all(at_most)) return at_most;
    enough = at_most;
  }
  while (enough - too_little > 1) {
    const int64_t limit = too_little + (enough - too_little) / 2;
    (holds_all(limit) ? enough : too_little) = limit;
  }
  return enough;
}

int64_t StepSolver::in_flight(int32_t stage) const { return tessera::in_flight(plan_, stage, m_); }

int64_t StepSolver::memory_bytes(int32_t device, const StageBlocks& stage) const {
  return times_.memory_bytes(stage, device == 0, device + 1 == plan_.pp, in_flight(device),
                             plan_.virtual_stages);
}

// All but what its blocks keep for backward.
int64_t StepSolver::fixed_bytes(int32_t device, int64_t count) const {
  const int64_t chunks = plan_.virtual_stages;
  return memory_bytes(device, blocks(count, Recompute::kFull)) -
         (count * times_.activation_bytes(Recompute::kFull) * in_flight(device) + chunks - 1) / chunks;
}

// How many blocks of a stage are recomputed, so that it fits; nothing when it cannot.
std::optional<StageBlocks> StepSolver::fill(int32_t device, int64_t count) const {
  const int64_t flights = in_flight(device), chunks = plan_.virtual_stages;
  const auto kept = [&](Recompute way) {
    return (times_.activation_bytes(way) * flights + chunks - 1) / chunks;
  };
  std::vector<BlockChoice> choices;
  for (size_t i = 0; i < ways_.size(); ++i) choices.push_back({way_seconds_[i], kept(ways_[i]), 0});
  const auto found = solve_repeated_blocks(choices, count, limit_ - fixed_bytes(device, count));
  if (!found.ok()) return std::nullopt;
  StageBlocks stage{count, 0, 0};
  for (size_t i = 0; i < ways_.size(); ++i) {
    if (ways_[i] == Recompute::kFull) stage.full = found->counts[i];
    if (ways_[i] == Recompute::kSelective) stage.selective = found->counts[i];
  }
  return stage;
}

// Equal chunks; a device's recomputed blocks are dealt out to its chunks in turn.
Result<FoundStep> StepSolver::solve_interleaved(double& bound_s, double most_s) const {
  const int64_t chunks = plan_.virtual_stages, each = model_.L / (plan_.pp * chunks);
  std::vector<StageBlocks> stages(static_cast<size_t>(plan_.pp * chunks), StageBlocks{each, 0, 0});
  std::vector<double> forward, backward;
  for (int32_t device = 0; device < plan_.pp; ++device) {
    const auto whole = fill(device, each * chunks);
    if (!whole) return Status(StatusCode::kOutOfMemory, format("stage {} does not fit", device));
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      StageBlocks& stage = stages[static_cast<size_t>(chunk * plan_.pp + device)];
      stage.full = whole->full / chunks + (chunk < whole->full % chunks ? 1 : 0);
      stage.selective = std::min(each - stage.full,
                                 whole->selective / chunks + (chunk < whole->selective % chunks ? 1 : 0));
    }
    double f = 0, b = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t v = chunk * plan_.pp + device;
      const StagePasses passes =
          times_.of(stages[static_cast<size_t>(v)], v == 0, v + 1 == plan_.pp * chunks);
      f += passes.forward_s, b += passes.backward_s;
    }
    forward.push_back(f), backward.push_back(b);
  }
  // The device with most work does all of it, after the first micro-batch came through those before it and
  // before the last one goes back through them (their first chunks).
  double least = 0, before = 0;
  for (int32_t device = 0; device < plan_.pp; ++device) {
    const auto d = static_cast<size_t>(device);
    least = std::max(least, static_cast<double>(m_) * (forward[d] + backward[d]) + before);
    const StagePasses chunk = times_.of(stages[d], device == 0, false);
    before += chunk.forward_s + chunk.backward_s;
  }
  bound_s = with_after(kBoundSlack * least);
  return finish(std::move(stages), most_s);
}

Result<FoundStep> StepSolver::finish(std::vector<StageBlocks> stages, double most_s) const {
  FoundStep found;
  TSR_ASSIGN_OR_RETURN(found.time,
                       step_time(model_, plan_, cluster_, options_.global_batch, stages, nullptr, most_s));
  found.plan = plan_;
  found.plan.recompute = Recompute::kNone;
  for (const StageBlocks& stage : stages) {
    if (stage.selective > 0 && found.plan.recompute == Recompute::kNone)
      found.plan.recompute = Recompute::kSelective;
    if (stage.full > 0) found.plan.recompute = Recompute::kFull;
  }
  for (int32_t device = 0; device < plan_.pp; ++device) {
    StageBlocks whole;
    for (size_t v = static_cast<size_t>(device); v < stages.size(); v += static_cast<size_t>(plan_.pp)) {
      whole.blocks += stages[v].blocks, whole.full += stages[v].full, whole.selective += stages[v].selective;
    }
    found.memory_bytes.push_back(memory_bytes(device, whole));
  }
  found.stages = std::move(stages);
  return found;
}

// No stage holds fewer parameters than the average.
double StepSolver::with_after(double pipeline_s) const {
  return after_.step_s(pipeline_s, average_of(times_.counts(model_.L, true, true), plan_.pp));
}

}  // namespace tessera
