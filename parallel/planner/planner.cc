// Search of make_plan for devices of one kind. Each configuration is lowered, simulated on all ranks and sized
// (plan_attempt.h); memory savings that cost time are considered only if it does not fit. Costs always come from the
// program; bounds only exclude.
#include "parallel/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <set>
#include <tuple>

#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "parallel/planner/best_first.h"
#include "parallel/planner/heterogeneous_plan.h"
#include "parallel/planner/kind_factors.h"
#include "parallel/planner/lowered_question.h"
#include "parallel/planner/smallest_fit.h"
#include "parallel/pricing/check_cluster.h"
#include "parallel/strategy/apply_pins.h"

namespace tessera {

namespace {

// Lowerings before a plan is found, and after.
constexpr int64_t kMostWithout = 160, kMostWithPlan = 32;
// Lowerings, and configurations, per search for recompute sets.
constexpr int64_t kMostForSets = 36, kMostSets = 12;
// Share of planning effort; the rest is for the steps after the search.
constexpr double kSearchShare = 0.8;
// After this many misses, descendants of the smallest come first.
constexpr int64_t kBeforeSmallest = 40;
// Configurations excluded by bytes alone, per lowering.
constexpr int64_t kSkippedForOne = 16;
// Finalists are predicted within this factor of the fastest.
constexpr double kFinalistTime = 1.5;
// Factor over the present plan within which a likely time may still turn out faster.
constexpr double kSurprise = 1.03;

// The family of a plan: finalists should differ in more than
// details, since price errors are similar within a family.
auto family_of(const PlanAttempt& it) {
  const StrategySpec& spec = it.node.spec;
  return std::tuple(kind_of(spec), spec.devices(), spec.offload.any(), spec.recompute != RecomputeForm::kNone);
}

// Configuration: of the space, not yet lowered.
struct Configuration {
  SpaceNode node;
  double likely_s = 0;             // estimated time, never below the parent's; orders and ends the search
  int64_t saves_from = INT64_MAX;  // bytes of the parent whose memory it saves
};
using OpenConfiguration = OpenPart<Configuration>;

// LoweredSearch: one search, used for one query, in one thread. An evaluator (best_first.h).
class LoweredSearch {
 public:
  static constexpr bool kByBound = false;

  // It has begun, and outlives this.
  explicit LoweredSearch(LoweredQuestion& question) : question_(question), may_save_(!question.roots.has_words) {}

  Result<PlanResult> run(PlanRefusal& refusal) {
    const bool none = question_.is_excluded();
    refusal.is_excluded = none;
    if (options_.any_that_fits && question_.may_choose_smallest()) return any_within(none);
    // Pins are meant literally: options that they leave
    // open stay off unless nothing fits otherwise.
    std::vector<StrategySpec> plain, others;
    for (const StrategySpec& spec : roots_.specs) (roots_.is_as_worded(spec) ? plain : others).push_back(spec);
    for (const StrategySpec& spec : plain) open({spec, SavingStep::kNone}, 0);
    // If even parameters and saved activations are too large for every strategy
    // that keeps them, the smallest of the others decides feasibility fastest.
    const bool is_tight = !none && question_.may_choose_smallest() && std::ranges::all_of(roots_.specs, [&](const StrategySpec& it) {
      return question_.bounds->bytes(it) > limit_;
    });
    if (is_tight) TSR_RETURN_IF_ERROR(find_smallest(limit_));
    // Any smaller limit would have the same result.
    if (is_tight && !has_smallest()) refusal.is_excluded = true;
    if (!none && (!is_tight || has_smallest())) TSR_RETURN_IF_ERROR(explore());
    if (!best_ && !others.empty()) {
      for (const StrategySpec& spec : others) open({spec, SavingStep::kNone}, 0);
      for (const SpaceNode& node : std::exchange(held_back_, {})) open(node, 0);
      may_save_ = true;
      TSR_RETURN_IF_ERROR(explore());
    }
    if (!best_) {
      if (options_.any_that_fits) return Status(StatusCode::kOutOfMemory, "no plan fits");
      if (!has_smallest()) return refuse(refusal);
      best_ = &attempts_.emplace_back(*smallest_);
      return result();
    }
    if (options_.any_that_fits) return any_result();
    if (may_choose_sets()) {
      try_sets();
      while (!best_->exact) {
        TSR_RETURN_IF_ERROR(finalize(*best_));
        find_fastest();
      }
    }
    if (question_.decides_by_measuring()) TSR_RETURN_IF_ERROR(choose_measured());
    return result();
  }

  // --- evaluator ---

  Result<bool> may_continue() {
    if (is_spent()) return false;
    if (!best_ && !sets_tried_ && spent() >= kBeforeSmallest && may_choose_sets()) {
      sets_tried_ = true;
      try_sets();
      if (is_spent()) return false;
    }
    if (!best_ && !smallest_ && question_.may_choose_smallest() && spent() >= kBeforeSmallest) {
      TSR_RETURN_IF_ERROR(find_smallest(limit_));
      if (!has_smallest()) return false;
    }
    const bool smallest_first = !best_ && search_.solved >= kBeforeSmallest;
    open_.rank_again([&](const OpenConfiguration& it) {
      const StrategySpec& spec = it.part.node.spec;
      return smallest_first ? std::pair(factors_.evaluated(spec), static_cast<double>(it.part.saves_from))
                            : std::pair(0.0, factors_.guess_s(spec, it.part.likely_s));
    });
    return true;
  }

  bool is_closed(const OpenConfiguration& it) const {
    return best_ && std::max(it.part.likely_s * likely_trust_.factor, it.bound * trust_.factor) >=
                        best_->candidate.step_time_s * (question_.decides_by_measuring() ? kFinalistTime : 1);
  }

  size_t at_once() const { return 1; }
  void prepare(const std::vector<OpenConfiguration>&) {}

  void evaluate(const OpenConfiguration& open) {
    const auto& [node, likely_s, saves_from] = open.part;
    // A single strategy has few ways to save memory: all are lowered, which is more precise than bounds.
    if (roots_.specs.size() > 1 && question_.bounds->bytes(node.spec) > limit_) {
      ++search_.too_large;
      // Parameters and state are cheap to bound.
      skipped_ += question_.bounds->persistent_bytes(node.spec) <= limit_;
      too_large_.push_back(open.part);
      return save(node, likely_s, question_.bounds->bytes(node.spec));
    }
    const PlanAttempt& it = attempts_.emplace_back(question_.trials.make(node));
    factors_.count(node.spec);
    if (options_.effort != nullptr) options_.effort->left -= it.instructions * std::max(1, it.lowerings);
    if (!it.lowered) {
      ++search_.refused;
      return;
    }
    ++search_.solved;
    const double seconds = it.candidate.step_time_s;
    trust_.observe(open.bound, seconds);
    likely_trust_.observe(likely_s, seconds);
    factors_.learn(node.spec, likely_s, seconds);
    find_fastest();
    if (it.fits()) return;
    ++search_.too_large;
    save(node, std::max(likely_s, seconds), it.candidate.arena_bytes);
  }

 private:
  bool may_choose_sets() const { return may_save_ && question_.may_choose_sets(); }
  bool has_smallest() const { return smallest_ && smallest_->fits(); }
  Status find_smallest(int64_t enough) {
    TSR_ASSIGN_OR_RETURN(smallest_, question_.find_smallest(enough));
    return {};
  }
  // The fastest that fits; ties: fewer collectives, then the first found.
  void find_fastest() {
    const auto at = std::ranges::min_element(attempts_, is_better);
    best_ = at != attempts_.end() && at->fits() ? &*at : nullptr;
  }

  int64_t spent() const { return search_.solved + skipped_ / kSkippedForOne; }

  bool is_spent() {
    if (best_ && options_.any_that_fits) return true;
    if (!best_) without_ = spent();
    const int64_t used = best_ ? spent() - without_ : spent();
    const int64_t most = best_ ? (question_.decides_by_measuring() ? 2 : 1) * kMostWithPlan : kMostWithout;
    if (used >= most || (!best_ && question_.is_effort_spent())) return true;
    report_progress(kSearchShare * static_cast<double>(used) / static_cast<double>(most));
    return false;
  }

  // Explores until no open configuration can beat the fastest that fits, which has then all ranks lowered.
  Status explore() {
    for (;;) {
      TSR_RETURN_IF_ERROR(search_best_first(*this, open_, closed_));
      if (best_ == nullptr || best_->exact) return {};
      TSR_RETURN_IF_ERROR(finalize(*best_));
      find_fastest();
      // Its time may have risen, and with it the closing bound.
      for (OpenConfiguration& it : std::exchange(closed_, {})) open_.put_back(std::move(it));
    }
  }

  void open(const SpaceNode& node, double at_least_s, int64_t saves_from = INT64_MAX) {
    cancellation_point();
    ++search_.configurations;
    double bound_s = 0, likely_s = at_least_s;
    if (options_.like == nullptr) {
      bound_s = question_.bounds->seconds(node.spec);
      // Its own work only; overheads of savings order the search separately.
      StrategySpec plain = node.spec;
      plain.recompute = RecomputeForm::kNone;
      plain.offload = {};
      likely_s = std::max(likely_s, question_.bounds->seconds(plain));
    }
    open_.push({node, likely_s, saves_from}, bound_s);
  }

  std::vector<SpaceNode> savings(const SpaceNode& node) const {
    return savings_of(node, question_.space, roots_.pins, roots_.has_words);
  }

  void save(const SpaceNode& node, double at_least_s, int64_t bytes) {
    if (options_.like != nullptr) return;
    for (const SpaceNode& below : savings(node))
      if (may_save_)
        open(below, at_least_s, bytes);
      else
        held_back_.push_back(below);
  }

  // Lowers it as it will run. A recompute set that is
  // then too large is chosen again with a smaller budget.
  Status finalize(PlanAttempt& it) {
    TSR_RETURN_IF_ERROR(question_.trials.lower_whole(it));
    if (it.fits()) return {};
    ++search_.too_large;
    const int64_t excess = it.candidate.arena_bytes - limit_;
    if (it.node.spec.recompute == RecomputeForm::kSome && it.limit > 0 && it.limit == limit_) {
      PlanAttempt smaller = question_.trials.make(it.node, limit_ - excess, INFINITY);
      smaller.limit = limit_ - excess;
      attempts_.push_back(std::move(smaller));
      return {};
    }
    save(it.node, it.candidate.step_time_s, it.candidate.arena_bytes);
    return {};
  }

  // --- sets to recompute and to offload (recompute_search.h) ---

  // Tries sets for nodes that are too large only if everything is kept, and otherwise
  // faster than the present plan. The smallest likely loss comes first.
  void try_sets() {
    struct Promise {
      double likely_s = 0, least_s = 0;
      StrategySpec spec;
    };
    std::vector<Promise> again, moved;
    const auto consider = [&](const StrategySpec& kept, double step_s, int64_t bytes) {
      for (const bool moves : {false, true}) {
        if (moves && kept.offload.activations != Tier::kDevice) break;
        StrategySpec spec = moves ? with_moves(kept, question_.space.away) : kept;
        const auto [least_s, likely_s] = question_.bounds->extra_seconds_with_set(spec, bytes, limit_);
        if (std::isinf(least_s)) continue;
        spec.recompute = RecomputeForm::kSome;
        auto& order = spec.offload.activations == Tier::kDevice ? again : moved;
        order.push_back({step_s + likely_s, step_s + least_s, spec});
      }
    };
    for (const PlanAttempt& it : attempts_)
      if (it.lowered && !it.fits() && it.node.spec.recompute == RecomputeForm::kNone)
        consider(it.node.spec, it.candidate.step_time_s, it.candidate.arena_bytes);
    for (const Configuration& it : too_large_)
      if (const StrategySpec& spec = it.node.spec;
          spec.recompute == RecomputeForm::kNone && question_.bounds->persistent_bytes(spec) <= limit_)
        consider(spec, factors_.guess_s(spec, it.likely_s), question_.bounds->bytes(spec));
    for (auto* order : {&again, &moved}) {
      std::ranges::stable_sort(*order, {}, &Promise::likely_s);
      int64_t more = 0, lowerings = 0;
      for (const auto& [likely_s, least_s, spec] : *order) {
        const double beat_s = best_ ? best_->candidate.step_time_s : INFINITY;
        if (more == kMostSets || lowerings >= kMostForSets || likely_s >= kSurprise * beat_s) break;
        if (least_s >= beat_s || !with_sets_.insert(to_text(spec)).second) continue;
        ++more;
        ++search_.configurations;
        const PlanAttempt& it = attempts_.emplace_back(question_.trials.make({spec, SavingStep::kRecompute}, limit_, beat_s));
        lowerings += it.lowerings;
        ++(it.lowered ? search_.solved : search_.refused);
        if (it.lowered && !it.fits()) ++search_.too_large;
        find_fastest();
      }
    }
  }

  // --- measured plans ---

  // The plans to measure: the fastest of each family, then the next of any.
  Result<std::vector<PlanAttempt*>> finalists() {
    std::vector<PlanAttempt*> order;
    for (PlanAttempt& it : attempts_)
      if (it.fits() && it.candidate.step_time_s <= kFinalistTime * best_->candidate.step_time_s) order.push_back(&it);
    std::ranges::stable_sort(order, [](const PlanAttempt* a, const PlanAttempt* b) { return is_better(*a, *b); });
    std::vector<PlanAttempt*> chosen = {best_};
    std::set seen = {family_of(*best_)};
    for (const bool only_new : {true, false})
      for (PlanAttempt* it : order) {
        if (chosen.size() >= static_cast<size_t>(options_.finalists)) return chosen;
        if (std::ranges::find(chosen, it) != chosen.end()) continue;
        if (only_new && seen.contains(family_of(*it))) continue;
        if (!it->exact) TSR_RETURN_IF_ERROR(finalize(*it));
        if (!it->fits()) continue;
        seen.insert(family_of(*it));
        chosen.push_back(it);
      }
    return chosen;
  }

  Status choose_measured() {
    TSR_ASSIGN_OR_RETURN(const std::vector<PlanAttempt*> chosen, finalists());
    if (chosen.size() == 1) return {};
    std::vector<const Plan*> plans;
    for (const PlanAttempt* it : chosen) plans.push_back(&it->plan);
    TSR_ASSIGN_OR_RETURN(const std::vector<double> seconds, options_.measure(plans));
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i]->candidate.measured_s = seconds[i];
    best_ = chosen[static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin())];
    return {};
  }

  // --- result ---

  // Lower bound of the steps of the node and its descendants;
  // for a node that cannot fit, of its descendants alone.
  double bound_below(const SpaceNode& node) {
    if (options_.like != nullptr) return 0;
    if (question_.bounds->bytes(node.spec) <= limit_) return question_.bounds->seconds(node.spec);
    double bound_s = may_save_ && !roots_.has_words ? question_.bounds->seconds_with_set(node.spec, limit_) : INFINITY;
    if (may_save_)
      for (const SpaceNode& below : savings(node)) bound_s = std::min(bound_s, bound_below(below));
    return bound_s;
  }

  Result<PlanResult> any_within(bool none) {
    std::optional<PlanAttempt> any;
    if (!none) {
      TSR_ASSIGN_OR_RETURN(any, question_.find_smallest(limit_, true));
    }
    if (!any || !any->fits()) return Status(StatusCode::kOutOfMemory, "no plan fits");
    best_ = &attempts_.emplace_back(std::move(*any));
    return any_result();
  }

  PlanResult any_result() {
    return {std::move(best_->plan), {std::move(best_->candidate)}, std::move(search_)};
  }

  PlanResult result() {
    PlanResult result;
    result.plan = std::move(best_->plan);
    const double time_s = result.plan.estimate.step_time_s;
    search_.bound_s = time_s;
    const auto lower_bound = [&](double bound_s) { search_.bound_s = std::min(search_.bound_s, bound_s); };
    for (const PlanAttempt& it : attempts_)  // a measured plan may be predicted slower than another
      if (it.fits()) lower_bound(it.candidate.step_time_s);
    closed_.insert(closed_.end(), open_.all().begin(), open_.all().end());
    for (OpenConfiguration& it : closed_) it.bound = bound_below(it.part.node) * trust_.factor;
    std::ranges::sort(closed_, {}, [](const OpenConfiguration& it) { return std::pair(it.bound, it.order); });
    for (const OpenConfiguration& it : closed_) {
      ++(it.bound >= time_s ? search_.closed_by_bound : search_.open);
      lower_bound(it.bound);
      constexpr size_t kListed = 64;
      if (search_.closed.size() < kListed && std::isfinite(it.bound))
        search_.closed.push_back({to_text(it.part.node.spec), it.bound});
    }
    // Recompute sets that were not tried.
    if (may_save_ && !roots_.has_words && question_.space.trains) {
      for (const PlanAttempt& it : attempts_)
        if (it.lowered && !it.fits()) lower_bound(question_.bounds->seconds_with_set(it.node.spec, limit_) * trust_.factor);
      for (const Configuration& it : too_large_) lower_bound(question_.bounds->seconds_with_set(it.node.spec, limit_) * trust_.factor);
    }
    search_.gap = trust_.factor < 1 ? -1 : time_s > 0 ? (time_s - search_.bound_s) / time_s : 0;
    result.plan.estimate.gap = search_.gap;
    std::vector<PlanAttempt*> others;
    for (PlanAttempt& it : attempts_)
      if (&it != best_) others.push_back(&it);
    // Measured plans by their time, before the others.
    std::ranges::stable_sort(others, [](const PlanAttempt* a, const PlanAttempt* b) {
      const double mine = a->candidate.measured_s, other = b->candidate.measured_s;
      if (mine > 0 || other > 0) return mine > 0 && (other <= 0 || mine < other);
      return is_better(*a, *b);
    });
    result.candidates.push_back(std::move(best_->candidate));
    for (PlanAttempt* it : others) result.candidates.push_back(std::move(it->candidate));
    result.search = std::move(search_);
    return result;
  }

  Status refuse(PlanRefusal& refusal) {
    if (question_.may_choose_smallest() && !smallest_) TSR_RETURN_IF_ERROR(find_smallest(0));
    // Plans excluded by bounds may still contain the smallest.
    if (smallest_) {
      attempts_.push_back(std::move(*smallest_));
      too_large_.clear();
    }
    const auto bytes = [&](const Configuration& it) { return question_.bounds->bytes(it.node.spec); };
    std::ranges::stable_sort(too_large_, {}, bytes);
    int64_t more = 0;
    for (const Configuration& it : too_large_) {
      int64_t least = INT64_MAX;
      for (const PlanAttempt& tried : attempts_)
        if (tried.lowered) least = std::min(least, tried.candidate.arena_bytes);
      if (bytes(it) >= least || more++ == kMostWithPlan) break;
      attempts_.push_back(question_.trials.make(it.node));
    }
    if (attempts_.empty()) return Status(StatusCode::kInvalidArgument, "there is no strategy to try");
    const auto smallest = [&]() -> PlanAttempt& { return *std::ranges::min_element(attempts_, is_better); };
    while (smallest().lowered && !smallest().exact) TSR_RETURN_IF_ERROR(finalize(smallest()));
    const PlanAttempt& least = smallest();
    if (!least.lowered) return least.failure.with_context(format("strategy '{}'", least.candidate.strategy));
    refusal.least_limit = least.candidate.arena_bytes;
    refusal.smallest = least.plan;
    return nothing_fits({.entries = {},
                         .given = limit_,
                         .bytes = least.candidate.arena_bytes,
                         .strategy = least.candidate.strategy,
                         .more = "Its peak: " + least.peak});
  }

  LoweredQuestion& question_;
  const PlanOptions& options_ = question_.options;
  const SearchRoots& roots_ = question_.roots;
  const int64_t limit_ = question_.limit;
  std::optional<PlanAttempt> smallest_;  // regardless of time
  bool may_save_;  // savings are allowed

  OpenParts<Configuration> open_;
  std::vector<OpenConfiguration> closed_;  // by bound
  std::vector<SpaceNode> held_back_;       // while literal nodes may still fit
  std::vector<Configuration> too_large_;   // by their bounds
  KindFactors factors_;
  // Simulated times are whole nanoseconds per instruction.
  BoundTrust trust_{.tolerance = 1e-4}, likely_trust_{.tolerance = 1e-4};  // in bounds, in likely times
  std::set<std::string> with_sets_;  // nodes with a tried recompute set
  bool sets_tried_ = false;          // before a plan was found
  int64_t skipped_ = 0;              // skipped by saved activations alone
  int64_t without_ = 0;              // lowerings before a plan was found
  std::deque<PlanAttempt> attempts_;  // where they are, they stay
  PlanAttempt* best_ = nullptr;       // the fastest that fits
  PlanSearch search_;
};

Status check_request(const Graph& graph, const Cluster& cluster, const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_cluster(cluster));
  return check_pins(graph, options.pins);
}

}  // namespace

Result<int64_t> least_bytes_of_plans(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                                     const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_request(graph, given, options));
  if (is_heterogeneous(given) || options.like != nullptr) return 0;
  const Cluster cluster = with_one_kind(given);
  LoweredQuestion question(graph, cluster, catalog, options);
  TSR_RETURN_IF_ERROR(question.begin());
  return question.least_bytes();
}

Result<LikelyFit> likely_fit(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                             const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_request(graph, given, options));
  if (is_heterogeneous(given) || options.like != nullptr) return LikelyFit{};
  const Cluster cluster = with_one_kind(given);
  LoweredQuestion question(graph, cluster, catalog, options);
  if (!question.begin().ok()) return LikelyFit{Fit::kNo, {}, 0};  // of the pins
  return question.likely_fit();
}

Result<PlanResult> make_plan(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                             const PlanOptions& options, PlanRefusal* refusal) {
  PlanRefusal own;
  if (refusal == nullptr) refusal = &own;
  TSR_RETURN_IF_ERROR(check_cluster(given));
  if (is_heterogeneous(given)) return plan_heterogeneous(graph, given, catalog, options, *refusal);
  const Cluster cluster = with_one_kind(given);
  if (options.like != nullptr && options.like_graph == nullptr)
    return Status(StatusCode::kInvalidArgument, "PlanOptions.like needs like_graph with it");
  TSR_RETURN_IF_ERROR(check_pins(graph, options.pins));
  LoweredQuestion question(graph, cluster, catalog, options);
  TSR_RETURN_IF_ERROR(question.begin());
  Result<PlanResult> result = LoweredSearch(question).run(*refusal);
  const bool too_large = !result.ok() && result.status().code() == StatusCode::kOutOfMemory;
  if (!too_large || !options.advise || options.any_that_fits || options.like != nullptr) return result;
  return with_device_advice(result.status(), graph, cluster, catalog, options);
}

}  // namespace tessera
