#include "parallel/planner/plan_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "graph/base/text.h"
#include "parallel/planner/least_plan.h"
#include "parallel/planner/plan_attempt.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_queue.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/working_bytes.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

namespace {

// Lowerings that a search may spend once it has a plan, and before it has one.
constexpr int64_t kMostWithPlan = 32, kMostWithout = 160;
// Lowerings, and configurations, that looking for sets of activations to recompute may take at a time.
constexpr int64_t kMostForSets = 36, kMostSets = 12;
// What is likely to take so many times the plan in hand may still turn out faster.
constexpr double kSurprise = 1.03;
// After so many that did not fit, what comes of the smallest is looked at first.
constexpr int64_t kBeforeSmallest = 40;
// Finalists are predicted to take no longer than so many times the fastest.
constexpr double kFinalistTime = 1.5;
// Configurations that their bytes alone rule out, for one lowering.
constexpr int64_t kSkippedForOne = 16;

// The strategy that a plan names; of a plan edited by hand, one with its mesh.
StrategySpec spec_like(const Plan& plan) {
  const auto pins = parse_parallel(plan.strategy);
  const DeviceMesh mesh = plan.stages.empty() ? DeviceMesh{} : plan.stages[0].mesh;
  if (pins.ok() && pins->spec.devices() == mesh.size() * pins->spec.pp) {
    StrategySpec spec = pins->spec;
    // Mesh and placements are kept, not what was computed again.
    if (spec.recompute == RecomputeForm::kSome) spec.recompute = RecomputeForm::kNone;
    return spec;
  }
  const auto size = [&](std::string_view name) {
    const auto axis = mesh.find_axis(name);
    return axis ? mesh.axis_size(*axis) : 1;
  };
  StrategySpec spec;
  spec.tp = size("tp");
  spec.dp = size("dp") * size("dp_groups");
  spec.ep = size("ep");
  if (size("dp_groups") > 1) spec.zero = 3, spec.zero_group = size("dp");
  return spec;
}

class Search {
 public:
  Search(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog, const PlanOptions& options)
      : graph_(graph),
        cluster_(cluster),
        catalog_(catalog),
        options_(options),
        devices_(static_cast<int32_t>(cluster.devices.size())),
        limit_(memory_limit(cluster, options)),
        trials_(graph, bound_graph_, cluster, catalog, options, limit_) {}

  Result<PlanResult> run() {
    TSR_ASSIGN_OR_RETURN(bound_graph_, graph_.bind_partly(options_.symbols));
    space_ = space_of(graph_, options_.global_batch, tokens());
    TSR_ASSIGN_OR_RETURN(const std::vector<StrategySpec> roots, settle_roots());
    PlanBounds bounds(bound_graph_, space_, cluster_, catalog_);
    bounds_ = &bounds;
    is_single_ = roots.size() == 1;
    WorkingBytes working(bound_graph_, space_);
    const LeastPlanSpace smallest{roots, space_, pins_, bounds, working, trials_};
    if (may_choose_smallest()) smallest_ = &smallest;
    const bool none = smallest_ != nullptr && none_within(smallest, limit_);
    if (options_.any_that_fits && smallest_ != nullptr) return any_within(none);
    // Whoever gives words means what they name: options that they leave open stay off unless that does not
    // fit.
    std::vector<StrategySpec> plain, others;
    for (const StrategySpec& spec : roots) (is_as_worded(spec) ? plain : others).push_back(spec);
    for (const StrategySpec& spec : plain) come_up({spec, SavingStep::kNone}, 0);
    size_t best = attempts_.size();
    if (!none) {
      TSR_ASSIGN_OR_RETURN(best, explore());
    }
    if (best == attempts_.size() && !others.empty()) {
      for (const StrategySpec& spec : others) come_up({spec, SavingStep::kNone}, 0);
      for (const SpaceNode& node : std::exchange(held_back_, {})) come_up(node, 0);
      may_save_ = true;
      TSR_ASSIGN_OR_RETURN(best, explore());
    }
    if (best == attempts_.size()) {
      if (options_.any_that_fits) return Status(StatusCode::kOutOfMemory, "no plan fits");
      if (!least_ || !least_->fits()) return nothing_fits();
      attempts_.push_back(*least_);
      return result_of(best);
    }
    if (options_.any_that_fits) return any_of(best);
    TSR_ASSIGN_OR_RETURN(best, recompute_some(best));
    if (!decides_by_measuring()) return result_of(best);
    TSR_ASSIGN_OR_RETURN(best, fastest_measured(best));
    return result_of(best);
  }

 private:
  int64_t tokens() const {
    for (const auto& [name, value] : options_.symbols)
      if (name == "T") return value;
    return 0;
  }

  Result<std::vector<StrategySpec>> settle_roots() {
    if (devices_ == 0) return Status(StatusCode::kInvalidArgument, "the cluster has no devices to plan for");
    if (options_.like != nullptr) {
      StrategySpec spec = spec_like(*options_.like);
      // The same cut into micro-batches where this batch admits it: whole, a batch may hold more than what
      // the step keeps of its parts.
      const int32_t parts = options_.like->micro_batches;
      if (spec.micro_batch == 0 && parts > 1)
        spec.micro_batch = options_.global_batch / (spec.data() * int64_t{parts});
      const int64_t at_once = spec.micro_batch * spec.data();
      if (at_once > 0 && options_.global_batch % at_once != 0) spec.micro_batch = 0;
      return std::vector<StrategySpec>{spec};
    }
    TSR_ASSIGN_OR_RETURN(pins_, parse_parallel(options_.parallel));
    has_words_ = !options_.parallel.empty();
    may_save_ = !has_words_;
    if (pins_.dp && pins_.tp && pins_.spec.devices() != devices_)
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' uses {} devices, {} are given; ask for {} devices or change dp or tp",
                           options_.parallel, pins_.spec.devices(), devices_, pins_.spec.devices()));
    std::vector<StrategySpec> roots = plan_roots(space_, pins_, has_words_, devices_);
    if (roots.empty())
      return Status(StatusCode::kInvalidArgument,
                    format("no strategy with '{}' uses {} devices exactly: dp times tp must be {}",
                           options_.parallel, devices_, devices_));
    return roots;
  }

  // Nothing chosen beyond the words given. Without words, anything.
  bool is_as_worded(const StrategySpec& spec) const {
    if (!has_words_) return true;
    StrategySpec plain = pins_.spec;
    plain.dp = spec.dp;
    plain.tp = spec.tp;
    if (plain.recompute == RecomputeForm::kAuto) plain.recompute = spec.recompute;
    if (plain.offload.automatic) plain.offload = spec.offload;
    return spec == plain;
  }

  void come_up(const SpaceNode& node, double at_least_s, int64_t saves_from = INT64_MAX) {
    ++search_.configurations;
    double bound_s = 0, likely_s = at_least_s;
    if (options_.like == nullptr) {
      bound_s = bounds_->seconds(node.spec);
      // Of its own work alone: what savings add is in the overheads that order the search.
      StrategySpec plain = node.spec;
      plain.recompute = RecomputeForm::kNone;
      plain.offload = {};
      likely_s = std::max(likely_s, bounds_->seconds(plain));
    }
    queue_.push(node, bound_s, likely_s, saves_from);
  }

  // Until nothing that is open can be faster than the fastest that fits, which is returned with all its ranks
  // lowered; the number of attempts when none fits.
  Result<size_t> explore() {
    for (;;) {
      size_t best = fastest();
      while (!queue_.empty()) {
        const bool found = best < attempts_.size();
        if (found && options_.any_that_fits) break;
        if (!found) without_ = spent();
        if (found ? spent() - without_ >= (decides_by_measuring() ? 2 : 1) * kMostWithPlan
                  : spent() >= kMostWithout)
          break;
        if (!found && !sets_tried_ && spent() >= kBeforeSmallest && may_choose_sets()) {
          sets_tried_ = true;
          best = try_sets(best);
          continue;
        }
        if (!found && !least_ && smallest_ != nullptr && spent() >= kBeforeSmallest) {
          TSR_ASSIGN_OR_RETURN(least_, least_plan(*smallest_, {limit_}));
          if (!least_ || !least_->fits()) break;
        }
        OpenPlan open = queue_.take(!found && search_.solved >= kBeforeSmallest);
        if (found &&
            std::max(open.likely_s * likely_trust_, open.bound_s * trust_) >=
                attempts_[best].candidate.step_time_s * (decides_by_measuring() ? kFinalistTime : 1)) {
          closed_.push_back(std::move(open));
          continue;
        }
        look_at(open);
        best = fastest();
      }
      if (best == attempts_.size() || attempts_[best].exact) return best;
      TSR_RETURN_IF_ERROR(settle(best));
      // Its time may have risen, and with it what its bound closes.
      for (OpenPlan& open : std::exchange(closed_, {})) queue_.put_back(std::move(open));
    }
  }

  // Without words; single decisions that are given may lie in other parts than its bounds count.
  bool may_choose_smallest() const { return may_choose_sets() && options_.pins.empty(); }

  int64_t spent() const { return search_.solved + skipped_ / kSkippedForOne; }

  bool may_choose_sets() const {
    return may_save_ && !has_words_ && options_.like == nullptr && space_.trains;
  }

  // What it costs that a strategy which takes so many bytes fits by computing some of it again, at least and
  // likely; infinite where no set at all would do.
  std::pair<double, double> seconds_again(const StrategySpec& spec, int64_t bytes) {
    // Reading two values to write one again: what the cheapest operations take.
    const double rate = cluster_.kinds.empty() ? 0 : cluster_.kinds[0].memory_bytes_per_s;
    const double cheap_s = rate > 0 ? 3 * static_cast<double>(bytes - limit_) / rate : 0;
    const double kept_s = bounds_->seconds(spec), least_s = bounds_->seconds_within(spec, limit_) - kept_s;
    // What bounds do not see of the bytes stays; where no set would then do, it may be that none does.
    const int64_t unseen = std::max<int64_t>(0, bytes - bounds_->bytes(spec));
    const double likely_s = bounds_->seconds_within(spec, limit_ - unseen) - kept_s;
    constexpr double kDoubt = 0.02;
    return {least_s, std::isinf(likely_s) ? std::max(least_s, cheap_s) + kDoubt * kept_s : likely_s};
  }

  // What is too large only when it keeps everything, and else faster than the plan in hand, if there is one:
  // with no more computed again than the limit asks for. What is likely to lose least comes first.
  size_t try_sets(size_t best) {
    struct Promise {
      double likely_s = 0, least_s = 0;
      SpaceNode node;
    };
    std::vector<Promise> order;
    const auto consider = [&](const StrategySpec& spec, double step_s, int64_t bytes) {
      const auto [least_s, likely_s] = seconds_again(spec, bytes);
      if (std::isinf(least_s)) return;
      SpaceNode node{spec, SavingStep::kRecompute};
      node.spec.recompute = RecomputeForm::kSome;
      order.push_back({step_s + likely_s, step_s + least_s, node});
    };
    for (const PlanAttempt& it : attempts_)
      if (it.lowered && !it.fits() && it.node.spec.recompute == RecomputeForm::kNone)
        consider(it.node.spec, it.candidate.step_time_s, it.candidate.arena_bytes);
    for (const OpenPlan& it : hopeless_)
      if (it.node.spec.recompute == RecomputeForm::kNone && bounds_->lasting_bytes(it.node.spec) <= limit_)
        consider(it.node.spec, queue_.guess_s(it), bounds_->bytes(it.node.spec));
    std::ranges::stable_sort(order, {}, &Promise::likely_s);
    int64_t more = 0, lowerings = 0;
    for (const auto& [likely_s, least_s, node] : order) {
      const double beat_s = best < attempts_.size() ? attempts_[best].candidate.step_time_s : INFINITY;
      if (more == kMostSets || lowerings >= kMostForSets || likely_s >= kSurprise * beat_s) break;
      if (least_s >= beat_s) continue;
      if (!with_sets_.insert(to_text(node.spec)).second) continue;
      ++more;
      ++search_.configurations;
      attempts_.push_back(trials_.make(node, limit_, beat_s));
      const PlanAttempt& it = attempts_.back();
      lowerings += it.lowerings;
      ++(it.lowered ? search_.solved : search_.refused);
      if (it.lowered && !it.fits()) ++search_.too_large;
      best = fastest();
    }
    return best;
  }

  Result<size_t> recompute_some(size_t best) {
    if (!may_choose_sets()) return best;
    best = try_sets(best);
    while (!attempts_[best].exact) {
      TSR_RETURN_IF_ERROR(settle(best));
      best = fastest();
    }
    return best;
  }

  bool decides_by_measuring() const {
    return options_.finalists > 1 && options_.measure && options_.like == nullptr;
  }

  // What a plan is about, for finalists to differ in more than details: where its prices err, so do its
  // likes'.
  static auto family_of(const PlanAttempt& it) {
    const StrategySpec& spec = it.node.spec;
    return std::tuple(kind_of(spec), spec.devices(), spec.offload.any(),
                      spec.recompute != RecomputeForm::kNone);
  }

  // Those to be measured: the fastest of each family, then the next of any.
  Result<std::vector<size_t>> finalists(size_t best) {
    std::vector<size_t> order;
    for (size_t i = 0; i < attempts_.size(); ++i)
      if (attempts_[i].fits() &&
          attempts_[i].candidate.step_time_s <= kFinalistTime * attempts_[best].candidate.step_time_s)
        order.push_back(i);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return better(attempts_[a], attempts_[b]); });
    std::vector<size_t> chosen = {best};
    std::set seen = {family_of(attempts_[best])};
    for (const bool only_new : {true, false})
      for (const size_t at : order) {
        if (chosen.size() >= static_cast<size_t>(options_.finalists)) return chosen;
        if (std::ranges::find(chosen, at) != chosen.end()) continue;
        if (only_new && seen.contains(family_of(attempts_[at]))) continue;
        if (!attempts_[at].exact) TSR_RETURN_IF_ERROR(settle(at));
        if (!attempts_[at].fits()) continue;
        seen.insert(family_of(attempts_[at]));
        chosen.push_back(at);
      }
    return chosen;
  }

  Result<size_t> fastest_measured(size_t best) {
    TSR_ASSIGN_OR_RETURN(const std::vector<size_t> chosen, finalists(best));
    if (chosen.size() == 1) return best;
    std::vector<const Plan*> plans;
    for (const size_t at : chosen) plans.push_back(&attempts_[at].plan);
    TSR_ASSIGN_OR_RETURN(const std::vector<double> seconds, options_.measure(plans));
    for (size_t i = 0; i < chosen.size(); ++i) attempts_[chosen[i]].candidate.measured_s = seconds[i];
    return chosen[static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin())];
  }

  void look_at(const OpenPlan& open) {
    // Of one strategy there are few ways to save memory: all are lowered, and tell more than bounds do.
    if (!is_single_ && bounds_->bytes(open.node.spec) > limit_) {
      ++search_.too_large;
      // Parameters and state are soon looked up.
      skipped_ += bounds_->lasting_bytes(open.node.spec) <= limit_;
      hopeless_.push_back(open);
      return save(open.node, open.likely_s, bounds_->bytes(open.node.spec));
    }
    attempts_.push_back(trials_.make(open.node));
    queue_.count(open);
    const PlanAttempt& it = attempts_.back();
    if (!it.lowered) {
      ++search_.refused;
      return;
    }
    ++search_.solved;
    const double seconds = it.candidate.step_time_s;
    // Simulated times are whole nanoseconds, instruction by instruction.
    if (seconds < open.bound_s * trust_ * (1 - 1e-4)) {
      trust_ = seconds / open.bound_s;
      bounds_hold_ = false;
    }
    if (seconds < open.likely_s * likely_trust_ * (1 - 1e-4)) likely_trust_ = seconds / open.likely_s;
    queue_.learn(open, seconds);
    if (it.fits()) return;
    ++search_.too_large;
    save(open.node, std::max(open.likely_s, seconds), it.candidate.arena_bytes);
  }

  void save(const SpaceNode& node, double at_least_s, int64_t bytes) {
    if (options_.like != nullptr) return;
    for (const SpaceNode& below : savings_of(node, space_, pins_, has_words_))
      if (may_save_)
        come_up(below, at_least_s, bytes);
      else
        held_back_.push_back(below);
  }

  // Index of the fastest that fits; ties go to fewer collectives, then to what came up first.
  size_t fastest() const {
    size_t best = attempts_.size();
    for (size_t i = 0; i < attempts_.size(); ++i)
      if (attempts_[i].fits() && (best == attempts_.size() || better(attempts_[i], attempts_[best])))
        best = i;
    return best;
  }

  // As it will run. A set of activations that so turns out too large is chosen again, with as much less to
  // fit in.
  Status settle(size_t which) {
    PlanAttempt& it = attempts_[which];
    TSR_RETURN_IF_ERROR(trials_.lower_whole(it));
    if (it.fits()) return {};
    ++search_.too_large;
    const int64_t excess = it.candidate.arena_bytes - limit_;
    if (it.node.spec.recompute == RecomputeForm::kSome && it.limit > 0 && it.limit == limit_) {
      PlanAttempt smaller = trials_.make(it.node, limit_ - excess, INFINITY);
      smaller.limit = limit_ - excess;
      attempts_.push_back(std::move(smaller));
      return {};
    }
    save(it.node, it.candidate.step_time_s, it.candidate.arena_bytes);
    return {};
  }

  // --- the answer ---

  // No step of the node, or of what saves memory from it, is faster: what cannot fit is left for what is
  // below.
  double bound_below(const SpaceNode& node) {
    if (options_.like != nullptr) return 0;
    if (bounds_->bytes(node.spec) <= limit_) return bounds_->seconds(node.spec);
    double bound_s = may_save_ && !has_words_ ? bound_of_sets(node) : INFINITY;
    if (may_save_)
      for (const SpaceNode& below : savings_of(node, space_, pins_, has_words_))
        bound_s = std::min(bound_s, bound_below(below));
    return bound_s;
  }

  double bound_of_sets(const SpaceNode& node) {
    if (node.spec.recompute != RecomputeForm::kNone) return INFINITY;
    return bounds_->seconds_within(node.spec, limit_);
  }

  // `none`: known not to be.
  Result<PlanResult> any_within(bool none) {
    std::optional<PlanAttempt> any;
    if (!none) {
      TSR_ASSIGN_OR_RETURN(any, least_plan(*smallest_, {limit_, true}));
    }
    if (!any || !any->fits()) return Status(StatusCode::kOutOfMemory, "no plan fits");
    attempts_.push_back(std::move(*any));
    return any_of(0);
  }

  PlanResult any_of(size_t which) {
    PlanResult result;
    result.plan = std::move(attempts_[which].plan);
    result.candidates = {std::move(attempts_[which].candidate)};
    result.search = std::move(search_);
    return result;
  }

  PlanResult result_of(size_t best) {
    PlanResult result;
    result.plan = std::move(attempts_[best].plan);
    const double time_s = result.plan.estimate.step_time_s;
    search_.bound_s = time_s;
    for (const PlanAttempt& it : attempts_)  // one that was measured may be predicted slower than another
      if (it.fits()) search_.bound_s = std::min(search_.bound_s, it.candidate.step_time_s);
    closed_.insert(closed_.end(), queue_.open().begin(), queue_.open().end());
    for (OpenPlan& open : closed_) open.bound_s = bound_below(open.node) * trust_;
    std::ranges::sort(closed_, [](const OpenPlan& a, const OpenPlan& b) {
      return a.bound_s != b.bound_s ? a.bound_s < b.bound_s : a.order < b.order;
    });
    for (const OpenPlan& open : closed_) {
      ++(open.bound_s >= time_s ? search_.closed_by_bound : search_.open);
      search_.bound_s = std::min(search_.bound_s, open.bound_s);
      constexpr size_t kListed = 64;
      if (search_.closed.size() < kListed && std::isfinite(open.bound_s))
        search_.closed.push_back({to_text(open.node.spec), open.bound_s});
    }
    // Sets of activations to recompute that were not looked at.
    if (may_save_ && !has_words_ && space_.trains) {
      for (const PlanAttempt& it : attempts_)
        if (it.lowered && !it.fits())
          search_.bound_s = std::min(search_.bound_s, bound_of_sets(it.node) * trust_);
      for (const OpenPlan& open : hopeless_)
        search_.bound_s = std::min(search_.bound_s, bound_of_sets(open.node) * trust_);
    }
    search_.gap = bounds_hold_ ? (time_s - search_.bound_s) / time_s : -1;
    result.plan.estimate.gap = search_.gap;
    std::rotate(attempts_.begin(), attempts_.begin() + static_cast<std::ptrdiff_t>(best),
                attempts_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    // Those that were measured in the order of what they took, before the others.
    std::stable_sort(attempts_.begin() + 1, attempts_.end(), [](const PlanAttempt& a, const PlanAttempt& b) {
      const double mine = a.candidate.measured_s, other = b.candidate.measured_s;
      if (mine > 0 || other > 0) return mine > 0 && (other <= 0 || mine < other);
      return better(a, b);
    });
    for (PlanAttempt& it : attempts_) result.candidates.push_back(std::move(it.candidate));
    result.search = std::move(search_);
    return result;
  }

  Result<PlanResult> nothing_fits() {
    if (smallest_ != nullptr && !least_) {
      TSR_ASSIGN_OR_RETURN(least_, least_plan(*smallest_, {}));
    }
    // What bounds alone ruled out may else still be the smallest.
    if (least_) {
      attempts_.push_back(std::move(*least_));
      hopeless_.clear();
    }
    std::ranges::stable_sort(hopeless_, {}, [&](const OpenPlan& it) { return bounds_->bytes(it.node.spec); });
    int64_t more = 0;
    for (const OpenPlan& open : hopeless_) {
      int64_t least = INT64_MAX;
      for (const PlanAttempt& it : attempts_)
        if (it.lowered) least = std::min(least, it.candidate.arena_bytes);
      if (bounds_->bytes(open.node.spec) >= least || more++ == kMostWithPlan) break;
      attempts_.push_back(trials_.make(open.node));
    }
    std::ranges::stable_sort(attempts_, better);
    if (attempts_.empty()) return Status(StatusCode::kInvalidArgument, "there is no strategy to try");
    for (;;) {
      PlanAttempt& least = attempts_[0];
      if (!least.lowered)
        return least.failure.with_context(format("strategy '{}'", least.candidate.strategy));
      if (!least.exact) {
        TSR_RETURN_IF_ERROR(settle(0));
        std::ranges::stable_sort(attempts_, better);
        continue;
      }
      if (options_.least_limit != nullptr) *options_.least_limit = least.candidate.arena_bytes;
      if (options_.smallest != nullptr) *options_.smallest = least.plan;
      return Status(StatusCode::kOutOfMemory,
                    format("no plan fits {} a device; the smallest limit that works is {} ({} bytes) with "
                           "'{}'. Its peak: {}",
                           bytes_text(limit_), bytes_text(least.candidate.arena_bytes),
                           least.candidate.arena_bytes, least.candidate.strategy, least.peak));
    }
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  const int32_t devices_;
  const int64_t limit_;
  Graph bound_graph_;  // symbols bound but for B
  const PlanAttempts trials_;
  SpaceOfGraph space_;
  StrategyPins pins_;
  bool has_words_ = false;
  bool may_save_ = true;          // what saves memory may come up
  PlanBounds* bounds_ = nullptr;  // from the beginning of a run on
  bool is_single_ = false;        // one strategy to begin with: what is searched only saves memory
  bool bounds_hold_ = true;
  double trust_ = 1;         // bounds count for that much
  double likely_trust_ = 1;  // and what is likely
  PlanQueue queue_;
  std::vector<OpenPlan> closed_;              // by their bounds
  std::vector<SpaceNode> held_back_;          // while what is as worded may still fit
  std::vector<OpenPlan> hopeless_;            // too large by what their bounds say
  std::set<std::string> with_sets_;           // for which a set was looked for
  bool sets_tried_ = false;                   // before there was a plan
  int64_t skipped_ = 0;                       // of those, by what waits for backward
  const LeastPlanSpace* smallest_ = nullptr;  // where the smallest may be looked for
  std::optional<PlanAttempt> least_;          // that it found
  std::vector<PlanAttempt> attempts_;
  PlanSearch search_;
  int64_t without_ = 0;  // lowerings before there was a plan
};

}  // namespace

int64_t memory_limit(const Cluster& cluster, const PlanOptions& options) {
  if (options.memory_limit > 0) return options.memory_limit;
  int64_t limit = INT64_MAX;
  for (const int32_t kind : cluster.devices) {
    const int64_t bytes = cluster.kinds[static_cast<size_t>(kind)].memory_bytes;
    if (bytes > 0) limit = std::min(limit, bytes);
  }
  return limit;
}

Result<PlanResult> search_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                               const PlanOptions& options) {
  return Search(graph, cluster, catalog, options).run();
}

}  // namespace tessera
