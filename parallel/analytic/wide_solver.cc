// Bounds, with t_s = f_s + b_s the passes of stage s and W their sum:
//   1f1b      as analytic/step_solver
//   gpipe     T >= W + (m - 1) t_s for every s
//   zb        the longest device is no shorter than its work, m t_s; the first one also waits for its first
//             input gradient with no more than K forward passes done, and the way there and back takes all
//             forward passes and all later input gradients:
//             T >= sum_s (f_s + i_s) - i_0 - min(m, K) f_0 + m t_0, where i_s is b_s less gradients of
//             weights
//   zb-v      the first device has both ends: until the first micro-batch is through it can do forward passes
//             of its first chunk only, 2p - 1 at most:
//             T >= sum_s f_s - min(m, 2p - 1) f_0 - f_last + m t_d
//             It is cut in one way only, so that the busiest device has least to do.
//   zb, all   the last micro-batch comes to the longest forward pass after all others, and has the way to the
//             last stage and back left: T >= sum_s (f_s + i_s) + (m - 1) max f_s
//   chunks    (interleaved) a device works after the first forward and before the last backward pass of the
//             first chunks of those before it, c_d of a device, which have every v-th of its blocks or more:
//             T >= m t_d + sum of c_d' over d' < d.
//             So with n_d blocks of x seconds and what else a device does, e_d in all and o_d of it in its
//             first chunk, the most blocks that begin before device d in T seconds follow from one device to
//             the next: N_(d+1) x <= N_d x (1 - 1 / (v m)) + (T - o_0 - ... - o_(d-1)) / m - e_d
#include "parallel/analytic/wide_solver.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "graph/base/text.h"
#include "parallel/analytic/offload_time.h"
#include "parallel/analytic/zero_bubble_replay.h"
#include "parallel/search/pipeline_cuts.h"
#include "parallel/search/repeated_blocks.h"

namespace tessera {

namespace {

// Sums of rounded times may differ from the replay's in the last bits.
constexpr double kSlack = 1 - 1e-9;

// One way to compute a block.
struct Way {
  Recompute recompute = Recompute::kNone;
  int32_t quarters = 0;  // of what it keeps, on the host
  double seconds = 0;
};

StageBlocks all_of(int64_t count, const Way& way) {
  StageBlocks blocks{count, way.recompute == Recompute::kFull ? count : 0,
                     way.recompute == Recompute::kSelective ? count : 0};
  if (way.quarters > 0) blocks.offloaded[static_cast<size_t>(way.quarters - 1)] = count;
  return blocks;
}

double both(const StagePasses& passes) { return passes.forward_s + passes.backward_s; }

std::vector<Recompute> recomputations(const StepSearchOptions& options, const ForeignPlan& plan) {
  std::vector<Recompute> all;
  for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    if (allowed(options.recompute, way) && (way != Recompute::kSelective || !plan.fused_attention))
      all.push_back(way);
  return all.empty() ? std::vector<Recompute>{Recompute::kNone} : all;
}

// The largest share of backward in any stage's time, which bounds what can hide beside it.
double backward_share(const StageTimes& times, const StepSearchOptions& options, const ForeignPlan& plan) {
  double share = 0;
  const auto note = [&](const StagePasses& passes) {
    if (both(passes) > 0) share = std::max(share, passes.backward_s / both(passes));
  };
  for (const bool first : {true, false}) note(times.of({}, first, !first || plan.pp == 1));
  for (const Recompute way : recomputations(options, plan))
    for (int32_t quarters = 0; quarters <= (way == Recompute::kNone ? 4 : 0); ++quarters)
      note(times.of(all_of(1, {way, quarters, 0}), false, false));
  return share;
}

// Savings that slow down what comes after the pipeline.
struct Saving {
  int32_t attention = 0, mlp = 0, chunks = 1, optimizer = 0;
};

class AfterBound {
 public:
  AfterBound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
             const ForeignPlan& plan, const StageTimes& times)
      : model_(model),
        cluster_(cluster),
        plan_(plan),
        m_(options.global_batch / (plan.micro_batch * plan.data())),
        share_(backward_share(times, options, plan)) {}

  // The least of pipelines of P seconds or more and what comes after. No device holds fewer parameters than
  // `own`, and no backward pass that hides communication lasts longer than its share of P / m. What hides
  // beside every micro-batch may gain more by a longer pipeline than that costs; the sum is convex in P.
  double step_s(double pipeline_s, const StageParameters& own) const {
    const auto total = [&](double p) {
      const AfterPipeline after =
          after_pipeline(model_, plan_, cluster_, m_, own, share_ * p / static_cast<double>(m_));
      return p + after.gradients_s + after.update_s;
    };
    // How much more is hidden by a second more of pipeline, at most.
    const double m = static_cast<double>(m_);
    const double more = 0.8 * 0.9 * share_ *
                        ((own.sharded > 0 || plan_.zero == 3 ? 1.5 : 0) + (plan_.zero == 2 ? 1 : 1 / m) +
                         (own.experts > 0 ? 1.5 : 0));
    if (!plan_.dp_overlap || plan_.replicas() == 1 || more <= 1) return total(pipeline_s);
    double low = pipeline_s, high = std::max(2 * total(0), pipeline_s);  // there everything is hidden
    for (int i = 0; i < 50; ++i) {
      const double a = low + (high - low) / 3, b = high - (high - low) / 3;
      (total(a) <= total(b) ? high : low) = total(a) <= total(b) ? b : a;
    }
    return (1 - 1e-7) * std::min({total(low), total(high), total(pipeline_s)});
  }

 private:
  const TransformerShape& model_;
  const Cluster& cluster_;
  const ForeignPlan& plan_;
  const int64_t m_;
  const double share_;
};

StageParameters average(StageParameters own, int32_t parts) {
  for (double* part :
       {&own.dense, &own.experts, &own.trained, &own.trained_experts, &own.sharded, &own.trained_sharded})
    *part /= parts;
  return own;
}

// No longer pipeline is needed: from all stages' passes as if they were one, which a slow host makes shorter.
double pipeline_bound(const TransformerShape& model, const StepSearchOptions& options,
                      const ForeignPlan& plan, int32_t chunks_to, const StageTimes& times) {
  const double m = static_cast<double>(options.global_batch / (plan.micro_batch * plan.data()));
  const Way least{recomputations(options, plan).front(), 0, 0};
  const double p = plan.pp, hops = 2 * (p * plan.virtual_stages - 1) * times.transfer_s();
  const double work = both(times.of(all_of(model.L, least), true, true)) + (plan.pp > 1 ? hops : 0);
  double pipeline = work * m / p;
  if (plan.pp == 1) return kSlack * pipeline;
  // Largest and smallest share of forward; smallest of all but gradients of weights.
  double forward = 0, least_forward = 1, inputs = 1;
  const auto note = [&](const StagePasses& passes) {
    if (both(passes) <= 0) return;
    forward = std::max(forward, passes.forward_s / both(passes));
    least_forward = std::min(least_forward, passes.forward_s / both(passes));
    inputs = std::min(inputs, 1 - passes.weight_s / both(passes));
  };
  note(times.of({}, true, false)), note(times.of({}, false, true));
  for (const Recompute way : recomputations(options, plan))
    for (int32_t quarters = 0; quarters <= (way == Recompute::kNone ? 4 : 0); ++quarters)
      note(times.of(all_of(1, {way, quarters, 0}), false, false));
  // From T >= c W + (m - k) t_0, and m t_s <= T for all others.
  const auto first_waits = [&](double c, double k) {
    return m > k ? work * (c + m - k) / (1 + (m - k) * (p - 1) / m) : work * c * m / k;
  };
  // The last micro-batch passes some stage after all others, on its way there and back.
  const double last_comes = work * (inputs + (m - 1) * least_forward / (p * plan.virtual_stages));
  switch (plan.schedule) {
    case ForeignSchedule::k1F1B: {
      double weights = 0;
      for (int32_t s = 0; s < plan.pp; ++s) {
        const double pace =
            m - 1 -
            static_cast<double>(std::min<int64_t>(static_cast<int64_t>(m), plan.pp - s) - 1) * forward;
        weights += pace > 0 ? 1 / pace : INFINITY;
      }
      pipeline = std::max(pipeline, work * (1 + (std::isinf(weights) ? 0 : 1 / weights)));
      break;
    }
    case ForeignSchedule::kGpipe: pipeline = std::max(pipeline, work * (1 + (m - 1) / p)); break;
    case ForeignSchedule::kZbH1:
    case ForeignSchedule::kZbH2: {
      const double flights = std::min(m, static_cast<double>(zero_bubble_limit(plan.schedule, plan.pp)));
      pipeline = std::max({pipeline, last_comes, first_waits(inputs, flights * forward + (1 - forward))});
      break;
    }
    case ForeignSchedule::kInterleaved: {
      // Of several numbers of chunks the most have the shortest way in and out, the least send least.
      const double block = both(times.of(all_of(1, least), false, false)) - 2 * times.transfer_s(),
                   sends = 2 * (plan.virtual_stages - 1) * times.transfer_s(), v = chunks_to;
      const double first = both(times.of({}, true, false)), between = both(times.of({}, false, false)),
                   last = both(times.of({}, false, true));
      // Blocks that begin before a device, in seconds: grows * T - less.
      double grows = 0, less = 0, before = 0;
      for (int32_t d = 0; d < plan.pp; ++d) {
        const double other = (d == 0 ? first : d + 1 == plan.pp ? last : between) + sends;
        grows += 1 / m - grows / (v * m);
        less += other + before / m - less / (v * m);
        before += d == 0 ? first : between;
      }
      pipeline = std::max(pipeline, (static_cast<double>(model.L) * block + less) / grows);
      break;
    }
    case ForeignSchedule::kZbV: {
      // A first chunk has two thirds of its device's blocks at most, when there are three.
      const double flights = std::min(m, 2 * p - 1);
      pipeline =
          std::max({pipeline, last_comes, first_waits(least_forward, forward * (1 + (flights - 1) * 2 / 3))});
      break;
    }
  }
  return kSlack * pipeline;
}

class Configuration {
 public:
  Configuration(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const ForeignPlan& plan, int64_t limit, int32_t chunks_to = 0)
      : model_(model),
        cluster_(cluster),
        options_(options),
        plan_(plan),
        times_(model, plan_, cluster),
        after_(model, cluster, options, plan_, times_),
        m_(options.global_batch / (plan.micro_batch * plan.data())),
        limit_(limit),
        chunks_to_(std::max(chunks_to, plan.virtual_stages)) {
    for (const Recompute way : recomputations(options, plan)) add_way({way, 0, 0});
    if (allowed(options.recompute, Recompute::kNone) && options.offload && cluster.host_link.bytes_per_s > 0)
      for (int32_t quarters = 1; quarters <= 4; ++quarters) add_way({Recompute::kNone, quarters, 0});
    if (!options.offload && plan.offload_activations > 0) {
      ways_.clear();
      add_way({Recompute::kNone, plan.offload_activations, 0});
    }
  }

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
    const Saving given = saving();
    apply(chains_.back().back());
    const int64_t limit = limit_ + memory(0, {1}).gathered;
    const bool can_be = too_slow(limit, best_) ? false : true;
    const std::optional<Pipeline> free = can_be ? pipeline(limit) : std::nullopt;
    apply(given);
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

  bool none_below(double step_s) {
    make_chains();
    apply(chains_.back().back());
    // As if weights on the host were fetched in no time, too.
    const int64_t away = options_.offload ? memory(0, {model_.L - plan_.pp + 1}).parameters : 0;
    return too_slow(limit_ + memory(0, {1}).gathered + away, step_s);
  }

 private:
  struct Pipeline {
    double bound_s = 0;
    std::vector<std::vector<StageBlocks>> cuts;  // by virtual stage; the best of them counts
    bool all_kept = true;
  };
  struct Point {
    bool fits = false;
    double pipeline_s = INFINITY;
  };

  void add_way(Way way) {
    way.seconds =
        both(times_.of(all_of(2, way), false, false)) - both(times_.of(all_of(1, way), false, false));
    ways_.push_back(way);
  }

  // Whether no device could hold its share of the blocks, saving all that may be saved. Some device has as
  // many.
  bool none_fits() {
    const std::vector<Saving>& last = chains_.back();
    const ForeignPlan plan = plan_;
    apply(last.back());
    bool fits = false;
    const int64_t share = (model_.L + plan_.pp - 1) / plan_.pp;
    for (int32_t d = 0; d < plan_.pp && !fits; ++d)
      for (const Way& way : ways_) fits = fits || memory(d, all_of(share, way)).total() <= limit_;
    // Slices help gathers only; without sharded operators there may be none.
    apply(chains_.front().front());
    for (int32_t d = 0; d < plan_.pp && !fits; ++d)
      for (const Way& way : ways_) fits = fits || memory(d, all_of(share, way)).total() <= limit_;
    plan_ = plan;
    return !fits;
  }

  // Whether the devices, each with as many blocks as it does in less than `step_s`, hold fewer than all. What
  // more blocks take is never less.
  bool too_slow(int64_t limit, double step_s) const {
    const auto in_time = [&](int32_t d, const StageBlocks& stage) {
      return kSlack * static_cast<double>(m_) * both(passes(d, stage)) < step_s;
    };
    const auto largest = [](int64_t high, const auto& may) {
      int64_t low = 0;
      for (int64_t middle = high; low < high; middle = (low + high + 1) / 2) {
        const bool fine = may(middle);
        (fine ? low : high) = fine ? middle : middle - 1;
      }
      return low;
    };
    // Without regard to memory first: passes at their quickest, the same for all devices in between.
    std::vector<int64_t> quick;
    int64_t most = 0;
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const bool alike = d > 1 && d + 1 < plan_.pp;
      quick.push_back(alike ? quick.back() : largest(model_.L - plan_.pp + 1, [&](int64_t n) {
        return n < plan_.virtual_stages || in_time(d, all_of(n, ways_.front()));
      }));
      most += quick.back();
    }
    if (most < model_.L) return true;
    most = 0;
    int64_t held = 0, flights_before = -1;
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const bool alike = d > 1 && d + 1 < plan_.pp && flights(d) == flights_before;
      if (!alike)
        held = largest(quick[static_cast<size_t>(d)], [&](int64_t n) {
          if (n < plan_.virtual_stages) return true;
          const auto stage = fill(d, n, limit);
          return stage && in_time(d, *stage);
        });
      flights_before = flights(d);
      most += held;
      if (most >= model_.L) return false;
    }
    return true;
  }

  Saving saving() const {
    return {plan_.sharded_attention, plan_.sharded_mlp, plan_.chunks, plan_.offload_optimizer};
  }

  // All savings that the configuration may have, as chains; the one without any first, all of them last.
  void make_chains() {
    const Saving given = saving();
    const bool offload = options_.offload && cluster_.host_link.bytes_per_s > 0;
    const bool shard = options_.shard && plan_.zero < 3 && plan_.replicas() > 1;
    const bool slices = options_.shard && plan_.replicas() > 1;
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
    return StageTimes(model_, probe, cluster_).counts(1, false, false).sharded * plan_.tp;
  }

  void apply(const Saving& saving) {
    plan_.sharded_attention = saving.attention, plan_.sharded_mlp = saving.mlp;
    plan_.chunks = saving.chunks, plan_.offload_optimizer = saving.optimizer;
  }

  // Parameters of a device on average, with so many blocks sharded in every stage.
  StageParameters own(const Saving& saving) {
    apply(saving);
    StageParameters all = average(times_.counts(model_.L, true, true), plan_.pp);
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
    apply(saving);
    const std::optional<Pipeline> solved = pipeline(limit_);
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

  // Of several numbers of chunks what every block keeps is least with the most or with the fewest.
  int32_t chunks(int32_t device) const {
    return 2 * (plan_.pp - device - 1) + 1 < plan_.pp ? plan_.virtual_stages : chunks_to_;
  }

  int64_t flights(int32_t device) const {
    if (chunks_to_ == plan_.virtual_stages) return in_flight(plan_, device, m_);
    ForeignPlan plan = plan_;
    plan.virtual_stages = chunks(device);
    return in_flight(plan, device, m_);
  }

  StageMemory memory(int32_t device, const StageBlocks& stage) const {
    const int64_t held = flights(device);
    StageMemory memory = times_.memory(stage, device == 0, holds_head(plan_, device), held, chunks(device));
    // What the embedding keeps grows with the chunks.
    if (chunks_to_ > plan_.virtual_stages && device == 0)
      memory.activations -= (held - in_flight(plan_, device, m_)) * times_.end_activation_bytes(true, false);
    return memory;
  }

  // How the blocks of a device are computed, so that they fit; nothing when they cannot.
  std::optional<StageBlocks> fill(int32_t device, int64_t count, int64_t limit) const {
    const StageBlocks kept = all_of(count, ways_.front());
    if (memory(device, kept).total() <= limit) return kept;
    bool any = false;
    for (const Way& way : ways_) any = any || memory(device, all_of(count, way)).total() <= limit;
    if (!any) return std::nullopt;
    const int64_t held = flights(device), chunks = this->chunks(device);
    const Way least{Recompute::kFull, 0, 0};
    const int64_t rest = memory(device, all_of(count, least)).total() -
                         (count * times_.activation_bytes(Recompute::kFull) * held + chunks - 1) / chunks;
    std::vector<BlockChoice> choices;
    std::vector<const Way*> used;
    for (const Way& way : ways_) {
      const int64_t away = way.quarters > 0 ? times_.offloaded_bytes(way.quarters) : 0;
      if (away > 0 && memory(device, all_of(count, way)).host > host_share_bytes(cluster_)) continue;
      choices.push_back({way.seconds,
                         ((times_.activation_bytes(way.recompute) - away) * held + chunks - 1) / chunks,
                         away});
      used.push_back(&way);
    }
    if (choices.empty()) return std::nullopt;
    const auto found = solve_repeated_blocks(choices, count, limit - rest);
    if (!found.ok()) return std::nullopt;
    StageBlocks stage{count, 0, 0};
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i]->recompute == Recompute::kFull) stage.full += found->counts[i];
      if (used[i]->recompute == Recompute::kSelective) stage.selective += found->counts[i];
      if (used[i]->quarters > 0)
        stage.offloaded[static_cast<size_t>(used[i]->quarters - 1)] += found->counts[i];
    }
    return stage;
  }

  // A device's blocks dealt out to its chunks in turn.
  std::vector<StageBlocks> deal(const StageBlocks& whole) const {
    const auto chunks = static_cast<size_t>(plan_.virtual_stages);
    if (chunks == 1) return {whole};
    std::vector<StageBlocks> parts(chunks);
    StageBlocks left = whole;
    for (int64_t i = 0; i < whole.blocks; ++i) {
      StageBlocks& part = parts[static_cast<size_t>(i) % chunks];
      ++part.blocks;
      const auto take = [](int64_t& from, int64_t& to) { return from > 0 && (--from, ++to, true); };
      if (take(left.full, part.full) || take(left.selective, part.selective)) continue;
      for (size_t q = 0; q < 4; ++q)
        if (take(left.offloaded[q], part.offloaded[q])) break;
    }
    return parts;
  }

  int32_t stage_of(int32_t device, size_t chunk) const {
    if (plan_.schedule == ForeignSchedule::kZbV && chunk == 1) return 2 * plan_.pp - 1 - device;
    return static_cast<int32_t>(chunk) * plan_.pp + device;
  }

  // All chunks of a device: as one, but every chunk sends what it makes.
  StagePasses passes(int32_t device, const StageBlocks& whole) const {
    StagePasses sum = times_.of(whole, device == 0, holds_head(plan_, device));
    const double sends = (plan_.virtual_stages - 1) * times_.transfer_s();
    sum.forward_s += sends, sum.backward_s += sends;
    return sum;
  }

  struct Price {
    StageBlocks blocks;
    StagePasses passes;
    bool fits = false;
  };

  // What stages with so many blocks take, of those asked for. Devices alike share.
  class Prices {
   public:
    Prices(const Configuration& own, int64_t limit) : own_(own), limit_(limit) {}

    const Price& operator()(int32_t device, int64_t n) {
      const bool first = device == 0, last = holds_head(own_.plan_, device);
      const uint64_t kind =
          (static_cast<uint64_t>(own_.flights(device)) << 2) | (first ? 2 : 0) | (last ? 1 : 0);
      const auto [at, made] = known_.try_emplace((kind << 24) | static_cast<uint64_t>(n));
      Price& price = at->second;
      if (!made || n < own_.plan_.virtual_stages) return price;
      if (const auto stage = own_.fill(device, n, limit_)) {
        price.fits = true, price.blocks = *stage, price.passes = own_.passes(device, *stage);
      }
      return price;
    }

   private:
    const Configuration& own_;
    const int64_t limit_;
    std::unordered_map<uint64_t, Price> known_;
  };

  std::optional<Pipeline> pipeline(int64_t limit) const {
    const auto m = static_cast<double>(m_);
    Pipeline result;
    Prices priced(*this, limit);
    // Passes grow with every block, and so do prices: unless some blocks' forward and others' backward wait.
    const bool waits = std::ranges::any_of(ways_, [](const Way& way) { return way.quarters > 0; });
    const double p = plan_.pp, hops = 2 * (p - 1) * times_.transfer_s();
    const double work =
        kSlack * (both(times_.of(all_of(model_.L, ways_.front()), true, true)) + (plan_.pp > 1 ? hops : 0));
    const auto cut = [&](auto&& price_of, bool bounds) {
      const auto price_at = [&](int32_t s, int64_t n) {
        const Price& price = priced(s, n);
        return price.fits ? price_of(s, price.passes) : StagePrice{INFINITY, INFINITY};
      };
      const auto floor = [&](int32_t s, int64_t n) {
        if (n < plan_.virtual_stages) return 0.0;
        const Price& price = priced(s, n);
        if (!price.fits) return static_cast<double>(INFINITY);
        const double own = m * both(price.passes);
        if (waits && plan_.schedule == ForeignSchedule::k1F1B) return own;
        const StagePrice shared = price_of(s, price.passes);
        return std::max(own, shared.pace_s + (shared.once_s > 0 ? work : 0));
      };
      const auto cuts = cut_growing_blocks(model_.L, plan_.pp, price_at, floor, (1 + 1e-8) * best_);
      if (!cuts.ok()) return false;
      if (bounds) result.bound_s = std::max(result.bound_s, kSlack * std::min(best_, cuts->time_s));
      if (cuts->first.empty()) {
        result.all_kept = result.all_kept && !bounds;
        return true;
      }
      std::vector<int64_t> counts;
      for (int32_t d = 0; d < plan_.pp; ++d) {
        const int64_t end = d + 1 < plan_.pp ? cuts->first[static_cast<size_t>(d) + 1] : model_.L;
        counts.push_back(end - cuts->first[static_cast<size_t>(d)]);
        const StageBlocks& whole = priced(d, counts.back()).blocks;
        result.all_kept = result.all_kept && whole == all_of(whole.blocks, ways_.front());
      }
      add_cut(priced, counts, result);
      return true;
    };
    result.bound_s = pipeline_bound(model_, options_, plan_, plan_.virtual_stages, times_);
    const auto usual = [&](int32_t, const StagePasses& s) { return StagePrice{both(s), (m - 1) * both(s)}; };
    const auto busiest = [&](int32_t, const StagePasses& s) { return StagePrice{0, m * both(s)}; };
    bool fits = false;
    switch (plan_.schedule) {
      case ForeignSchedule::k1F1B:
        fits = cut(
                   [&](int32_t d, const StagePasses& s) {
                     const double lead = static_cast<double>(flights(d) - 1) * s.forward_s;
                     return StagePrice{both(s), (m - 1) * both(s) - lead};
                   },
                   true) &&
               cut(usual, false);
        break;
      case ForeignSchedule::kGpipe: fits = cut(usual, true); break;
      case ForeignSchedule::kZbH1:
      case ForeignSchedule::kZbH2:
        fits = cut(busiest, true) && cut(usual, false);
        if (fits && result.bound_s < best_) wait_for_first(priced, result);
        break;
      case ForeignSchedule::kInterleaved:
        fits = cut(busiest, true);
        if (fits && result.bound_s < best_) wait_for_first_chunks(priced, result);
        break;
      case ForeignSchedule::kZbV: fits = cut(busiest, true); break;
    }
    return fits ? std::optional(std::move(result)) : std::nullopt;
  }

  // What holds of the first device holds of every device and those after it. From the last one on, the least
  // sum of later forward passes and input gradients decides whether any cut takes `step_s` or less.
  bool some_cut_below(Prices& priced, double step_s) const {
    const auto m = static_cast<double>(m_);
    const auto blocks = static_cast<size_t>(model_.L), devices = static_cast<size_t>(plan_.pp);
    // How many blocks a device does in the time at most; where it begins with that.
    std::vector<size_t> most(devices), least_begin(devices + 1, blocks), most_begin(devices + 1, 0);
    for (size_t s = 0; s < devices; ++s) {
      const auto may = [&](size_t n) {
        const Price& price = priced(static_cast<int32_t>(s), static_cast<int64_t>(n));
        return price.fits && m * both(price.passes) <= step_s;
      };
      size_t low = 0, high = blocks - devices + 1;
      while (low < high) {
        const size_t middle = (low + high + 1) / 2;
        const bool fine = may(middle);
        (fine ? low : high) = fine ? middle : middle - 1;
      }
      if (low == 0) return false;
      most[s] = low;
      most_begin[s + 1] = std::min(blocks - (devices - s - 1), most_begin[s] + low);
    }
    for (size_t s = devices; s-- > 0;)
      least_begin[s] = std::max(s, least_begin[s + 1] - std::min(least_begin[s + 1], most[s]));
    if (least_begin[0] > 0 || most_begin[devices] < blocks) return false;
    std::vector<double> later = {0}, now;
    size_t later_begin = blocks;
    for (size_t s = devices; s-- > 0;) {
      if (most_begin[s] < least_begin[s]) return false;
      now.assign(most_begin[s] + 1 - least_begin[s], INFINITY);
      for (size_t begin = least_begin[s]; begin <= most_begin[s]; ++begin)
        for (size_t end = std::max(begin + 1, later_begin);
             end <= std::min(begin + most[s], later_begin + later.size() - 1); ++end) {
          const double rest = later[end - later_begin];
          if (std::isinf(rest)) continue;
          const auto device = static_cast<int32_t>(s);
          const StagePasses& one = priced(device, static_cast<int64_t>(end - begin)).passes;
          const double input = one.backward_s - one.weight_s, sum = rest + one.forward_s + input;
          const double waits = m * both(one) - input - static_cast<double>(flights(device)) * one.forward_s;
          double& here = now[begin - least_begin[s]];
          if (sum + waits <= step_s) here = std::min(here, sum);
        }
      later.swap(now);
      later_begin = least_begin[s];
    }
    return std::isfinite(later[0]);
  }

  void wait_for_first(Prices& priced, Pipeline& result) const {
    double low = result.bound_s, high = best_;
    if (std::isinf(high)) high = 4 * low;
    if (!some_cut_below(priced, high)) {
      result.bound_s = kSlack * high;
      return;
    }
    for (int i = 0; i < 10; ++i) {
      const double middle = (low + high) / 2;
      (some_cut_below(priced, middle) ? high : low) = middle;
    }
    result.bound_s = std::max(result.bound_s, kSlack * low);
  }

  // The most blocks of a device that fits and keeps within `step_s`, beside `before`; at least as many as
  // `least`, which are not asked about.
  int64_t most_blocks(Prices& priced, int32_t device, int64_t least, int64_t most, double before,
                      double step_s) const {
    while (least < most) {
      const int64_t middle = (least + most + 1) / 2;
      const Price& price = priced(device, std::max<int64_t>(middle, plan_.virtual_stages));
      const bool fine =
          price.fits && kSlack * (static_cast<double>(m_) * both(price.passes) + before) <= step_s;
      (fine ? least : most) = fine ? middle : middle - 1;
    }
    return least;
  }

  // How many blocks the devices have, each as many as it does between the first chunks of those before it in
  // `step_s`; empty where that is fewer than all. One block more before a device takes less from it than it
  // adds. First chunks of a device with n blocks have n / v, rounded up: with `most` blocks a device at most,
  // those of several devices have no fewer than the convex hull of that says for each with as many.
  std::vector<int64_t> chunks_below(Prices& priced, double step_s) const {
    const int64_t chunks = plan_.virtual_stages, all = model_.L - plan_.pp + 1;
    int64_t most = 1;
    for (const int32_t d : {0, std::max(0, plan_.pp - 2), plan_.pp - 1})
      most = std::max(most, most_blocks(priced, d, 0, all, 0, step_s));
    const double v = static_cast<double>(chunks), even = static_cast<double>(most / chunks * chunks),
                 rest = static_cast<double>(most) - even;
    const auto first_chunk = [&](double n) {
      return n <= even || rest == 0 ? std::max(1.0, n / v) : std::max(1.0, even / v + (n - even) / rest);
    };
    const double block = both(times_.of(all_of(1, ways_.front()), false, false)) - 2 * times_.transfer_s();
    double others = 0;
    int64_t begun = 0;
    std::vector<int64_t> counts;
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const double before = d == 0 ? 0 : others + d * first_chunk(static_cast<double>(begun) / d) * block;
      const int64_t left = model_.L - begun - chunks * (plan_.pp - 1 - d);
      counts.push_back(most_blocks(priced, d, 0, std::min(all, std::max<int64_t>(left, 0)), before, step_s));
      begun += counts.back();
      others += both(times_.of({}, d == 0, false));
    }
    return begun < model_.L ? std::vector<int64_t>() : counts;
  }

  // Adds the cut that the bound comes from, which has more blocks on the first devices.
  void wait_for_first_chunks(Prices& priced, Pipeline& result) const {
    double low = result.bound_s, high = best_;
    if (std::isinf(high)) high = 4 * low;
    std::vector<int64_t> counts = chunks_below(priced, high);
    if (counts.empty()) {
      result.bound_s = kSlack * high;
      return;
    }
    for (int i = 0; i < 14; ++i) {
      const double middle = (low + high) / 2;
      std::vector<int64_t> now = chunks_below(priced, middle);
      (now.empty() ? low : high) = middle;
      if (!now.empty()) counts = std::move(now);
    }
    result.bound_s = std::max(result.bound_s, kSlack * low);
    for (int32_t d = 0; d < plan_.pp; ++d)
      if (!priced(d, counts[static_cast<size_t>(d)]).fits) return;
    add_cut(priced, counts, result);
  }

  void add_cut(Prices& priced, const std::vector<int64_t>& counts, Pipeline& result) const {
    std::vector<StageBlocks> stages(static_cast<size_t>(plan_.pp * plan_.virtual_stages));
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const std::vector<StageBlocks> parts = deal(priced(d, counts[static_cast<size_t>(d)]).blocks);
      for (size_t chunk = 0; chunk < parts.size(); ++chunk)
        stages[static_cast<size_t>(stage_of(d, chunk))] = parts[chunk];
    }
    if (std::ranges::find(result.cuts, stages) == result.cuts.end()) result.cuts.push_back(std::move(stages));
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
      const StageMemory held = memory(device, devices[static_cast<size_t>(device)]);
      if (held.host > host_share_bytes(cluster_))
        return Status(StatusCode::kOutOfMemory, format("{} wait on the host, a device's share is {}",
                                                       held.host, host_share_bytes(cluster_)));
      found.memory_bytes.push_back(held.total());
    }
    TSR_ASSIGN_OR_RETURN(found.time,
                         step_time(model_, plan_, cluster_, options_.global_batch, stages, nullptr, best_));
    found.stages = stages;
    return found;
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  ForeignPlan plan_;  // savings change it; passes do not depend on them, so `times_` stays right
  const StageTimes times_;
  const AfterBound after_;
  const int64_t m_, limit_;
  const int32_t chunks_to_;  // more than the plan's: of several configurations, whatever each holds least
  std::vector<Way> ways_;
  std::vector<std::vector<Saving>> chains_;
  double best_ = INFINITY;
  bool all_kept_ = false;  // of what was looked at last
};

}  // namespace

double wide_bound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                  const StepConfigurations& configurations, const StageTimes& times) {
  const ForeignPlan& plan = configurations.plan;
  const AfterBound after(model, cluster, options, plan, times);
  const double pipeline = pipeline_bound(model, options, plan, configurations.chunks_to, times);
  StageParameters own = average(times.counts(model.L, true, true), plan.pp);
  const double plain = after.step_s(pipeline, own);
  if (!options.shard || plan.zero == 3 || plan.replicas() == 1) return plain;
  // With everything hidden what comes after is linear in what is sharded, so least with none or all.
  const auto hidden = [&] {
    const AfterPipeline seconds = after_pipeline(
        model, plan, cluster, options.global_batch / (plan.micro_batch * plan.data()), own, 1e30);
    return seconds.gradients_s + seconds.update_s;
  };
  const double none = hidden();
  own.sharded = own.dense, own.trained_sharded = own.trained;
  return std::min(plain, kSlack * (pipeline + std::min(none, hidden())));
}

bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const ForeignPlan& mesh, int64_t limit, double step_s) {
  // No schedule holds less than 1F1B on any device, no ZeRO stage more than the last. Passes are the same.
  ForeignPlan plan = mesh;
  plan.schedule = ForeignSchedule::k1F1B, plan.virtual_stages = 1;
  plan.zero = options.zero.value_or(mesh.replicas() > 1 ? 3 : 0);
  return Configuration(model, cluster, options, plan, limit).none_below(step_s);
}

bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const StepConfigurations& of, int64_t limit, double step_s) {
  return Configuration(model, cluster, options, of.plan, limit, of.chunks_to).none_below(step_s);
}

SolvedStep solve_wide(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                      const ForeignPlan& plan, int64_t limit, double best_s) {
  return Configuration(model, cluster, options, plan, limit).solve(best_s);
}

}  // namespace tessera
