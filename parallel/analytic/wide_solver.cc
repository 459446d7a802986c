#include "parallel/analytic/wide_solver.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/analytic/after_bound.h"
#include "parallel/analytic/offload_time.h"
#include "parallel/analytic/relaxed_cuts.h"
#include "parallel/analytic/wide_cuts.h"

namespace tessera {

namespace {

class Configuration {
 public:
  Configuration(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const ForeignPlan& plan, const MeshTimes& mesh, int64_t limit, int32_t chunks_to = 0)
      : model_(model),
        cluster_(cluster),
        options_(options),
        replays_(mesh.replays()),
        cuts_(model, cluster, options, plan, chunks_to, mesh),
        plan_(cuts_.plan()),
        times_(cuts_.times()),
        after_(model, cluster, options, plan_, mesh.backward_share()),
        limit_(limit) {}

  SolvedStep solve(double best_s) {
    SolvedStep result;
    result.bound_s = INFINITY;
    best_ = best_s;
    make_chains();
    if (none_fits()) {
      result.too_large = result.wants_memory = true;
      return result;
    }
    const double quick = pipeline_bound(model_, options_, plan_, plan_.virtual_stages, times_);
    result.bound_s = INFINITY;
    for (const std::vector<Saving>& chain : chains_)
      result.bound_s = std::min(result.bound_s, chain_bound(chain, 0, chain.size(), quick));
    if (result.bound_s >= best_) return result;
    // With everything saved that may be, and gathers for nothing.
    const Saving given = cuts_.saving();
    cuts_.apply(chains_.back().back());
    const int64_t limit = limit_ + cuts_.memory(0, {1}).gathered;
    const bool can_be = !RelaxedCuts(model_, cuts_, limit).none_below(best_ - least_after());
    const std::optional<CutPipeline> free = can_be ? cuts_.pipeline(limit, best_) : std::nullopt;
    cuts_.apply(given);
    if (!can_be) {
      result.bound_s = best_;
      result.wants_memory = true;
      return result;
    }
    result.bound_s = INFINITY;
    if (!free) {
      result.too_large = result.wants_memory = true;
      return result;
    }
    result.wants_memory = !free->all_kept;
    bool fits = false, needs_memory = true;
    for (size_t i = 0; i < chains_.size(); ++i) {
      const std::vector<Saving>& chain = chains_[i];
      if (!needs_memory && (chain[0].optimizer > 0 || chain[0].chunks > 1)) continue;
      fits = follow(chain, free->bound_s, result) || fits;
      if (i == 0) needs_memory = !all_kept_;
    }
    result.too_large = !fits;
    return result;
  }

  // `after_s`: what comes after a pipeline at least. `any_schedule`: nor with another one that holds no less.
  bool none_below(double step_s, double after_s, bool any_schedule) {
    if (chains_.empty()) make_chains();
    cuts_.apply(chains_.back().back());
    // As if weights on the host were fetched in no time, too.
    const int64_t away = options_.offload ? cuts_.memory(0, {model_.L - plan_.pp + 1}).parameters : 0;
    const int64_t limit = limit_ + cuts_.memory(0, {1}).gathered + away;
    return RelaxedCuts(model_, cuts_, limit, any_schedule).none_below(step_s - after_s);
  }

  // What comes after any pipeline, at least. With everything hidden it is linear in what is sharded, so least
  // with none or all; other savings only add to it.
  double least_after() {
    if (chains_.empty()) make_chains();
    const Saving given = cuts_.saving();
    StageParameters stage = own(chains_.front().front());
    double least = after_.least_s(stage);
    if (options_.shard && plan_.zero < 3 && plan_.replicas() > 1) {
      stage.sharded = stage.dense, stage.trained_sharded = stage.trained;
      least = std::min(least, after_.least_s(stage));
    }
    cuts_.apply(given);
    return least;
  }

 private:
  struct Point {
    bool fits = false;
    double pipeline_s = INFINITY;
  };

  // Whether no device could hold its share of the blocks, saving all that may be saved. Some device has as
  // many.
  bool none_fits() {
    const std::vector<Saving>& last = chains_.back();
    const Saving given = cuts_.saving();
    cuts_.apply(last.back());
    bool fits = false;
    const int64_t share = (model_.L + plan_.pp - 1) / plan_.pp;
    for (int32_t d = 0; d < plan_.pp && !fits; ++d)
      for (const BlockWay& way : cuts_.ways())
        fits = fits || cuts_.memory(d, blocks_of(share, way)).total() <= limit_;
    // Slices help gathers only; without sharded operators there may be none.
    cuts_.apply(chains_.front().front());
    for (int32_t d = 0; d < plan_.pp && !fits; ++d)
      for (const BlockWay& way : cuts_.ways())
        fits = fits || cuts_.memory(d, blocks_of(share, way)).total() <= limit_;
    cuts_.apply(given);
    return !fits;
  }

  // All savings that the configuration may have, as chains; the one without any first, all of them last.
  void make_chains() {
    const Saving given = cuts_.saving();
    const bool offload = options_.offload && cluster_.host_link.bytes_per_s > 0;
    const bool shard = options_.shard && plan_.zero < 3 && plan_.replicas() > 1;
    const bool slices = options_.shard && plan_.replicas() > 1;
    if (!offload && !shard && !slices) {
      chains_.push_back({given});
      return;
    }
    const auto n = static_cast<int32_t>((model_.L + plan_.pp - 1) / plan_.pp);
    const int32_t levels = std::min(4, n);
    const auto level = [&](int32_t i) { return (i * n + levels - 1) / levels; };
    std::vector<Saving> mlp;
    for (int32_t a = 0; shard && a <= levels; ++a)
      for (int32_t f = 1; f <= levels; ++f) mlp.push_back({level(a), level(f)});
    const double per_attention = static_cast<double>(model_.block_parameters() - model_.expert_parameters()) -
                                 mlp_share(),
                 per_mlp = mlp_share();
    std::ranges::stable_sort(mlp, {},
                             [&](const Saving& s) { return s.attention * per_attention + s.mlp * per_mlp; });
    for (int32_t optimizer = 0; optimizer <= (offload ? 4 : 0); ++optimizer)
      for (const int32_t chunks : {1, 4}) {
        if (chunks > 1 && !slices) continue;
        const auto with = [&](Saving saving) {
          saving.chunks = slices ? chunks : given.chunks;
          saving.optimizer = offload ? optimizer : given.optimizer;
          return saving;
        };
        if (chunks == 1 || plan_.zero == 3) chains_.push_back({with({given.attention, given.mlp})});
        if (!shard) continue;
        std::vector<Saving> attention;
        for (int32_t a = 1; a <= levels; ++a) attention.push_back(with({level(a), 0}));
        chains_.push_back(attention);
        std::vector<Saving> both;
        for (const Saving& saving : mlp) both.push_back(with(saving));
        chains_.push_back(both);
      }
  }

  double mlp_share() const {
    ForeignPlan probe = plan_;
    probe.sharded_attention = 0, probe.sharded_mlp = 1;
    return StageTimes(times_, probe).counts(1, false, false).sharded * plan_.tp;
  }

  // Parameters of a device on average, with so many blocks sharded in every stage.
  StageParameters own(const Saving& saving) {
    cuts_.apply(saving);
    StageParameters all = average_of(times_.counts(model_.L, true, true), plan_.pp);
    const StageParameters stage = times_.counts(std::max<int64_t>(1, model_.L / plan_.pp), false, false);
    all.sharded = std::min(stage.sharded, all.dense),
    all.trained_sharded = std::min(stage.trained_sharded, all.trained);
    return all;
  }

  // No plan with savings of a chain from `begin` to before `end` is faster, when its pipeline takes so long.
  double chain_bound(const std::vector<Saving>& chain, size_t begin, size_t end, double pipeline_s) {
    double least = INFINITY;
    for (size_t i = begin; i < end; ++i) least = std::min(least, after_.step_s(pipeline_s, own(chain[i])));
    return least;
  }

  // Whether any of the chain fits.
  bool follow(const std::vector<Saving>& chain, double free_s, SolvedStep& result) {
    const double before = chain_bound(chain, 0, chain.size(), free_s);
    if (before >= best_) {
      result.bound_s = std::min(result.bound_s, before);
      all_kept_ = false;
      return true;  // closed, whether or not it fits
    }
    std::vector<std::optional<Point>> points(chain.size());
    const auto at = [&](size_t i) -> const Point& {
      if (!points[i]) points[i] = look(chain[i], result);
      return *points[i];
    };
    if (!at(chain.size() - 1).fits) return false;
    at(0);
    std::vector<std::pair<size_t, size_t>> open = {{0, chain.size() - 1}};
    while (!open.empty()) {
      const auto [low, high] = open.back();
      open.pop_back();
      if (high - low < 2) continue;
      const double bound = chain_bound(chain, low + 1, high, at(high).pipeline_s);
      if (bound >= best_) {
        result.bound_s = std::min(result.bound_s, bound);
        continue;
      }
      const size_t middle = (low + high) / 2;
      at(middle);
      open.push_back({low, middle}), open.push_back({middle, high});
    }
    return true;
  }

  Point look(const Saving& saving, SolvedStep& result) {
    cuts_.apply(saving);
    const std::optional<CutPipeline> solved = cuts_.pipeline(limit_, best_);
    all_kept_ = solved && solved->all_kept;
    result.wants_memory = result.wants_memory || !all_kept_;
    if (!solved) return {};
    double bound = after_.step_s(solved->bound_s, own(saving));
    if (bound >= best_) {
      result.bound_s = std::min(result.bound_s, bound);
      return {true, solved->bound_s};
    }
    for (const std::vector<StageBlocks>& stages : solved->cuts) {
      Result<FoundStep> found = finish(stages);
      // zb-v has one cut only, so what it takes is known.
      if (found.ok() && plan_.schedule == ForeignSchedule::kZbV)
        bound = std::max(bound, std::min(best_, found->time.step_s));
      if (!found.ok() || found->time.step_s >= best_) continue;
      best_ = found->time.step_s;
      result.found = std::move(*found);
    }
    result.bound_s = std::min(result.bound_s, bound);
    return {true, solved->bound_s};
  }

  Result<FoundStep> finish(const std::vector<StageBlocks>& stages) const {
    FoundStep found;
    found.plan = plan_;
    found.plan.recompute = Recompute::kNone;
    std::vector<StageBlocks> devices(static_cast<size_t>(plan_.pp));
    for (size_t v = 0; v < stages.size(); ++v) {
      const StageBlocks& stage = stages[v];
      if (stage.selective > 0 && found.plan.recompute == Recompute::kNone)
        found.plan.recompute = Recompute::kSelective;
      if (stage.full > 0) found.plan.recompute = Recompute::kFull;
      StageBlocks& whole = devices[static_cast<size_t>(device_of(plan_, static_cast<int32_t>(v)))];
      whole.blocks += stage.blocks, whole.full += stage.full, whole.selective += stage.selective;
      for (size_t q = 0; q < 4; ++q) {
        whole.offloaded[q] += stage.offloaded[q];
        if (stage.offloaded[q] > 0)
          found.plan.offload_activations =
              std::max(found.plan.offload_activations, static_cast<int32_t>(q) + 1);
      }
    }
    for (int32_t device = 0; device < plan_.pp; ++device) {
      const StageMemory held = cuts_.memory(device, devices[static_cast<size_t>(device)]);
      if (held.host > host_share_bytes(cluster_))
        return Status(StatusCode::kOutOfMemory, format("{} wait on the host, a device's share is {}",
                                                       held.host, host_share_bytes(cluster_)));
      found.memory_bytes.push_back(held.total());
    }
    TSR_ASSIGN_OR_RETURN(found.time, step_time(model_, plan_, cluster_, options_.global_batch, stages,
                                               nullptr, best_, &replays_));
    found.stages = stages;
    return found;
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  KnownReplays& replays_;
  WideCuts cuts_;
  const ForeignPlan& plan_;  // of the cuts
  const StageTimes& times_;
  const AfterBound after_;
  const int64_t limit_;
  std::vector<std::vector<Saving>> chains_;
  double best_ = INFINITY;
  bool all_kept_ = false;  // of what was looked at last
};

}  // namespace

double wide_bound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                  const StepConfigurations& configurations, const MeshTimes& mesh) {
  const ForeignPlan& plan = configurations.plan;
  const StageTimes times = mesh.of(plan);
  const AfterBound after(model, cluster, options, plan, mesh.backward_share());
  const double pipeline = pipeline_bound(model, options, plan, configurations.chunks_to, times);
  StageParameters own = average_of(times.counts(model.L, true, true), plan.pp);
  const double plain = after.step_s(pipeline, own);
  if (!options.shard || plan.zero == 3 || plan.replicas() == 1) return plain;
  // With everything hidden what comes after is linear in what is sharded, so least with none or all.
  const double none = after.least_s(own);
  own.sharded = own.dense, own.trained_sharded = own.trained;
  return std::min(plain, kBoundSlack * (pipeline + std::min(none, after.least_s(own))));
}

bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const ForeignPlan& mesh, const MeshTimes& times, int64_t limit, double step_s) {
  // No ZeRO stage holds more than the last; what comes after may be as little as with any of them. Passes are
  // the same. Savings change what comes after, which then counts for nothing.
  const auto none = [&](ForeignSchedule schedule, int32_t chunks) {
    ForeignPlan plan = mesh;
    plan.schedule = schedule, plan.virtual_stages = chunks;
    double after_s = options.shard || options.offload ? 0 : INFINITY;
    for (const int32_t zero : {0, 1, 2, 3}) {
      if (!allowed(options.zero, zero) || (zero > 0 && mesh.replicas() == 1 && !options.zero)) continue;
      plan.zero = zero;
      const AfterBound after(model, cluster, options, plan, times.backward_share());
      const StageTimes stage = times.of(plan);
      after_s = std::min(after_s, after.least_s(average_of(stage.counts(model.L, true, true), plan.pp)));
    }
    plan.zero = options.zero.value_or(mesh.replicas() > 1 ? 3 : 0);
    return Configuration(model, cluster, options, plan, times, limit).none_below(step_s, after_s, true);
  };
  // Of schedules with the model's ends on the first device and on the last one none holds less than 1F1B on
  // any device. zb-v has both on the first.
  const bool folds =
      mesh.pp > 1 && 2 * mesh.pp <= model.L && allowed(options.schedule, ForeignSchedule::kZbV);
  return none(ForeignSchedule::k1F1B, 1) && (!folds || none(ForeignSchedule::kZbV, 2));
}

bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const StepConfigurations& of, const MeshTimes& times, int64_t limit, double step_s) {
  Configuration one(model, cluster, options, of.plan, times, limit, of.chunks_to);
  return one.none_below(step_s, one.least_after(), false);
}

SolvedStep solve_wide(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                      const ForeignPlan& plan, const MeshTimes& times, int64_t limit, double best_s) {
  return Configuration(model, cluster, options, plan, times, limit).solve(best_s);
}

}  // namespace tessera
