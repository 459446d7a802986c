#include "parallel/planner/composed_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "parallel/planner/best_first.h"
#include "parallel/planner/composed_bound.h"
#include "parallel/planner/smallest_fit.h"
#include "parallel/pricing/host_tier.h"

namespace tessera {

namespace {

// Limits of composed plans: after one fits, and before.
constexpr int64_t kMostComposed = 400, kMostWithout = 1500;

// Offload to try: as pinned, else the cheapest in time if nothing fits without.
std::vector<OffloadWords> offloads(const StrategyPins& pins, Tier away) {
  if (pins.offload && !pins.spec.offload.automatic) return {pins.spec.offload};
  constexpr Tier kDevice = Tier::kDevice;
  return {{},
          {false, kDevice, kDevice, away, kDevice},
          {false, away, away, away, kDevice},
          {false, away, away, away, away}};
}

// GroupOrPlan: a group to profile, or one of its plans to compose.
struct GroupOrPlan {
  int32_t group = 0;
  std::optional<StrategySpec> plan = {};
};
using OpenItem = OpenPart<GroupOrPlan>;

// An evaluator (best_first.h).
class ComposedSearch {
 public:
  static constexpr bool kByBound = true;

  ComposedSearch(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                 const ComposedSearchOptions& options, const StrategyPins& pins)
      : options_(options),
        devices_(static_cast<int64_t>(cluster.devices.size())),
        graph_(composed_graph(model, cluster, options)),
        space_(graph_, pins, devices_),
        groups_(space_.groups()),
        composer_(model, cluster, catalog, options.global_batch, options.memory_limit) {
    is_dead_.assign(groups_.size(), false);
  }

  Result<ComposedSearchResult> run() {
    for (size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].parent < 0) open_.push({static_cast<int32_t>(g)}, 0);
    std::vector<OpenItem> closed;
    TSR_RETURN_IF_ERROR(search_best_first(*this, open_, closed));
    if (!best_) return Status(StatusCode::kOutOfMemory, "no plan fits");
    return answer();
  }

  // Items not reached by a run without result.
  int64_t left_over() const { return static_cast<int64_t>(open_.all().size()); }
  double left_over_bound() const { return open_.empty() ? INFINITY : open_.next().bound * trust_.factor; }

  // --- evaluator ---

  Result<bool> may_continue() const {
    const int64_t most = best_ ? found_at_ + kMostComposed : kMostWithout;
    report_progress(static_cast<double>(composed_) / static_cast<double>(most));
    return composed_ < most;
  }

  bool is_closed(const OpenItem& it) const { return best_ && it.bound * trust_.factor >= best_->time.step_s; }

  // Profiled in parallel; independent of threads, for determinism.
  size_t at_once() const { return 4; }

  void prepare(const std::vector<OpenItem>& items) {
    std::vector<PlanComposer::BlockProfile> wanted;
    for (const OpenItem& it : items)
      if (const auto& [group, plan] = it.part; plan)
        wanted.push_back({*plan, plan->recompute == RecomputeForm::kFull});
      else
        wanted.push_back(GroupBound::profile_of(groups_[static_cast<size_t>(group)].spec));
    composer_.prepare(wanted);
  }

  void evaluate(const OpenItem& it) { it.part.plan ? compose(it) : profile(it); }

 private:
  // A group's bound also holds for those that split its sequences further.
  void profile(const OpenItem& item) {
    const auto g = static_cast<size_t>(item.part.group);
    const PlanGroup& group = groups_[g];
    double bound_s = item.bound;
    is_dead_[g] = group.smaller >= 0 && is_dead_[static_cast<size_t>(group.smaller)];
    if (!is_dead_[g]) {
      if (Result<GroupBound> bound = GroupBound::of(group.spec, composer_); bound.ok()) {
        trust_.observe(bound_s, bound->seconds(devices_));
        bound_s = bound->seconds(devices_);
        is_dead_[g] = bound->bytes() > options_.memory_limit;
        if (!is_dead_[g]) open_plans(item.part.group, *bound);
      }
    }
    for (size_t child = 0; child < groups_.size(); ++child)
      if (groups_[child].parent == item.part.group) open_.push({static_cast<int32_t>(child)}, bound_s);
  }

  void open_plans(int32_t group, GroupBound& bound) {
    for (StrategySpec& plan : space_.plans_of(groups_[static_cast<size_t>(group)].spec)) {
      const double bound_s = bound.seconds(plan);
      ++result_.search.configurations;
      if (std::isinf(bound_s))
        ++result_.search.too_large;
      else
        open_.push({group, std::move(plan)}, bound_s);
    }
  }

  void compose(const OpenItem& item) {
    Result<ComposedPlan> plan = composer_.compose(*item.part.plan);
    if (!plan.ok()) {
      ++result_.search.refused;
      return;
    }
    ++composed_, ++result_.search.solved;
    const double seconds = plan->time.step_s;
    trust_.observe(item.bound, seconds);
    const int64_t bytes = plan->most_bytes();
    result_.entries.push_back({to_text(plan->spec), seconds, bytes});
    if (bytes > options_.memory_limit) {
      ++result_.search.too_large;
      return;
    }
    if (!best_) found_at_ = composed_;
    fitting_.push_back(*plan);
    if (!best_ || seconds < best_->time.step_s) best_ = *std::move(plan);
  }

  // Among plans nearly as fast, one with as many stages.
  const ComposedPlan& steadiest() const {
    const ComposedPlan* chosen = &*best_;
    for (const ComposedPlan& it : fitting_) {
      if (it.time.step_s > (1 + options_.within) * best_->time.step_s || it.spec.pp != best_->spec.pp)
        continue;
      const auto rank = [](const ComposedPlan& plan) {
        return std::tuple(plan.spec.tp, plan.spec.micro_batch, plan.time.step_s);
      };
      if (rank(it) < rank(*chosen)) chosen = &it;
    }
    return *chosen;
  }

  ComposedSearchResult answer() {
    result_.fastest = *best_;
    result_.plan = options_.within > 0 ? steadiest() : *best_;
    PlanSearch& search = result_.search;
    search.bound_s = best_->time.step_s;
    for (const OpenItem& it : open_.all()) {
      const double bound_s = it.bound * trust_.factor;
      const bool is_open = bound_s < best_->time.step_s;
      if (it.part.plan || is_open) ++(is_open ? search.open : search.closed_by_bound);
      search.bound_s = std::min(search.bound_s, bound_s);
    }
    std::ranges::stable_sort(result_.entries, {}, [&](const ComposedEntry& it) {
      return std::pair(it.bytes > options_.memory_limit, it.seconds);
    });
    return std::move(result_);
  }

  const ComposedSearchOptions& options_;
  const int64_t devices_;
  const SpaceOfGraph graph_;
  const ComposedSpace space_;
  const std::vector<PlanGroup> groups_;
  PlanComposer composer_;
  std::vector<bool> is_dead_;  // a single block does not fit
  OpenParts<GroupOrPlan> open_;
  BoundTrust trust_;
  int64_t composed_ = 0, found_at_ = 0;
  std::optional<ComposedPlan> best_;
  std::vector<ComposedPlan> fitting_;
  ComposedSearchResult result_;
};

// LeastMemory: the plan of the space with the smallest fullest device.
struct LeastMemory {
  StrategySpec spec;
  int64_t bytes = INT64_MAX;
};

// Over plans with ZeRO 3, full recomputation and, unless pinned, offload: the smallest micro-batch
// for each tensor form, and the schedule with least memory for each number of stages.
Result<LeastMemory> least_memory(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                                 const ComposedSearchOptions& options, StrategyPins pins) {
  if (!pins.zero) pins.spec.zero = 3, pins.zero = true;
  if (!pins.recompute) pins.spec.recompute = RecomputeForm::kFull, pins.recompute = true;
  const Tier away = offload_tier(cluster);
  if (!pins.offload || pins.spec.offload.automatic) pins.spec.offload = {false, away, away, away, away};
  const SpaceOfGraph graph = composed_graph(model, cluster, options);
  const ComposedSpace space(graph, pins, static_cast<int64_t>(cluster.devices.size()));
  PlanComposer composer(model, cluster, catalog, options.global_batch, 0);
  LeastMemory least;
  Status failure;
  for (const PlanGroup& group : space.groups()) {
    if (group.smaller >= 0) continue;
    for (const StrategySpec& plan : space.plans_of(group.spec)) {
      if (!pins.pp && plan.pp > 1 && plan.schedule != ScheduleKind::k1F1B) continue;
      cancellation_point();
      const Result<ComposedPlan> made = composer.compose(plan);
      if (!made.ok() && failure.ok()) failure = made.status();
      if (made.ok() && made->most_bytes() < least.bytes) least = {plan, made->most_bytes()};
    }
  }
  if (least.bytes < INT64_MAX) return least;
  if (!failure.ok()) return failure;
  return Status(StatusCode::kInvalidArgument,
                format("no plan of {} devices has '{}' with a batch of {} sequences", cluster.devices.size(),
                       options.parallel, options.global_batch));
}

// kOutOfMemory with the smallest limit found, and the first sufficient number of devices among doublings.
Status refuse_composed(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                       const ComposedSearchOptions& options, const StrategyPins& pins) {
  TSR_ASSIGN_OR_RETURN(const LeastMemory least, least_memory(model, cluster, catalog, options, pins));
  const auto limit_for = [&](int64_t bytes) { return options.limit_for ? options.limit_for(bytes) : bytes; };
  SmallestLimit smallest{.entries = {},
                         .given = limit_for(options.memory_limit),
                         .bytes = limit_for(least.bytes),
                         .is_exact = false,
                         .strategy = to_text(least.spec),
                         .more = "no number of devices up to 32 times as many was found to do"};
  Cluster larger = cluster;
  for (int32_t times = 2; times <= 32; times *= 2) {
    larger.devices.resize(cluster.devices.size() * static_cast<size_t>(times), cluster.devices[0]);
    const Result<LeastMemory> there = least_memory(model, larger, catalog, options, pins);
    if (!there.ok() || there->bytes > options.memory_limit) continue;
    const auto devices = static_cast<int64_t>(larger.devices.size());
    smallest.more = format("{} devices would do, with '{}'", devices, to_text(there->spec));
    return nothing_fits(smallest).with_number("smallest_devices", devices);
  }
  return nothing_fits(smallest);
}

// --- certificate ---

// Seconds are sums of the same terms in the same order; texts keep 17 digits.
constexpr double kSame = 1e-9;

bool is_same(double a, double b) { return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b)); }

Status wrong(std::string message) {
  return Status(StatusCode::kCorrupt, "certificate: " + std::move(message));
}

class CertificateChecker {
 public:
  CertificateChecker(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                     const ComposedSearchOptions& options, const StrategyPins& pins,
                     const ComposedCertificate& certificate)
      : options_(options),
        recompute_(pins.recompute ? pins.spec.recompute : RecomputeForm::kAuto),
        certificate_(certificate),
        composer_(model, cluster, catalog, options.global_batch, options.memory_limit),
        graph_(composed_graph(model, cluster, options)),
        space_(graph_, pins, static_cast<int64_t>(cluster.devices.size())) {
    for (const ComposedEntry& entry : certificate.composed) listed_.emplace(entry.strategy, &entry);
    for (const PlanGroup& group : space_.groups())
      for (const StrategySpec& plan : space_.plans_of(group.spec)) plans_.insert(without_recompute(plan));
  }

  Result<CertificateCheck> run() {
    TSR_RETURN_IF_ERROR(check_plan());
    TSR_RETURN_IF_ERROR(check_listed());
    for (const PlanGroup& group : space_.groups()) TSR_RETURN_IF_ERROR(check(group));
    return check_;
  }

 private:
  static std::string without_recompute(StrategySpec spec) {
    spec.recompute = RecomputeForm::kNone;
    return to_text(spec);
  }

  Status check_plan() {
    const auto at = listed_.find(certificate_.plan);
    if (at == listed_.end()) return wrong(format("the plan '{}' is not listed", certificate_.plan));
    const ComposedEntry& it = *at->second;
    if (!is_same(it.seconds, certificate_.step_s))
      return wrong(format("a step of {} s is claimed, '{}' is listed with {}", certificate_.step_s,
                          certificate_.plan, it.seconds));
    if (it.bytes > options_.memory_limit)
      return wrong(
          format("'{}' takes {} bytes, the limit is {}", certificate_.plan, it.bytes, options_.memory_limit));
    if (!(certificate_.bound_s > 0) || certificate_.bound_s > certificate_.step_s * (1 + kSame))
      return wrong(format("a bound of {} s for a step of {} s", certificate_.bound_s, certificate_.step_s));
    return {};
  }

  // The largest factor by which a plan undercuts its bound scales all bounds.
  Status check_listed() {
    for (const auto& [strategy, entry] : listed_) {
      TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(strategy));
      StrategySpec spec = pins.spec;
      if (!plans_.contains(without_recompute(spec)))
        return wrong(format("'{}' is listed, and is no plan of the space", strategy));
      cancellation_point();
      spec.recompute = recompute_;
      const Result<ComposedPlan> plan = composer_.compose(spec);
      if (!plan.ok()) return wrong(format("'{}' is listed: {}", strategy, plan.status().message()));
      if (to_text(plan->spec) != strategy)
        return wrong(format("'{}' is listed, and comes to '{}'", strategy, to_text(plan->spec)));
      if (!is_same(plan->time.step_s, entry->seconds) || plan->most_bytes() != entry->bytes)
        return wrong(format("'{}' is listed with {} s and {} bytes, found {} s and {} bytes", strategy,
                            entry->seconds, entry->bytes, plan->time.step_s, plan->most_bytes()));
      if (entry->bytes <= options_.memory_limit && entry->seconds < certificate_.step_s * (1 - kSame))
        return wrong(format("'{}' fits and takes {} s, the step claimed takes {}", strategy, entry->seconds,
                            certificate_.step_s));
      ++check_.composed;
      StrategySpec group = spec;
      group.dp = group.pp = 1, group.zero = 0, group.schedule = ScheduleKind::kNone, group.virtual_stages = 1;
      group.recompute = RecomputeForm::kNone;
      Result<GroupBound> bound = GroupBound::of(group, composer_);
      if (!bound.ok()) continue;
      if (const double bound_s = bound->seconds(spec); std::isfinite(bound_s)) trust_.observe(bound_s, entry->seconds);
    }
    return {};
  }

  Status check(const PlanGroup& group) {
    cancellation_point();
    Result<GroupBound> bound = GroupBound::of(group.spec, composer_);
    if (!bound.ok()) return {};  // inadmissible for the model
    const bool is_dead = bound->bytes() > options_.memory_limit;
    for (const StrategySpec& plan : space_.plans_of(group.spec)) {
      ++check_.configurations;
      const double bound_s = bound->seconds(plan) * trust_.factor;
      if (is_dead || std::isinf(bound_s)) {
        ++check_.too_large;
        continue;
      }
      if (bound_s >= certificate_.bound_s * (1 - kSame)) {
        ++check_.closed_by_bound;
        continue;
      }
      Result<ComposedPlan> composed = composer_.compose(plan);
      if (composed.ok() && !listed_.contains(to_text(composed->spec)))
        return wrong(format("'{}' is not listed, and its bound is {} s where {} is claimed",
                            to_text(composed->spec), bound_s, certificate_.bound_s));
    }
    return {};
  }

  const ComposedSearchOptions& options_;
  const RecomputeForm recompute_;
  const ComposedCertificate& certificate_;
  PlanComposer composer_;
  const SpaceOfGraph graph_;
  const ComposedSpace space_;
  std::map<std::string, const ComposedEntry*> listed_;
  std::set<std::string> plans_;  // of the space, regardless of recomputation
  BoundTrust trust_;
  CertificateCheck check_;
};

}  // namespace

SpaceOfGraph composed_graph(const ComposedModel& model, const Cluster& cluster,
                            const ComposedSearchOptions& options) {
  SpaceOfGraph graph = space_of(model.few, options.global_batch, options.tokens, offload_tier(cluster));
  graph.blocks = static_cast<int64_t>(model.like.size());
  return graph;
}

Result<ComposedSearchResult> search_composed(const ComposedModel& model, const Cluster& cluster,
                                             const KernelCatalog& catalog,
                                             const ComposedSearchOptions& options) {
  TSR_ASSIGN_OR_RETURN(const StrategyPins given, parse_parallel(options.parallel));
  StrategyPins pins = given;
  int64_t open = 0;
  double open_s = INFINITY;
  for (const OffloadWords& words : offloads(given, offload_tier(cluster))) {
    pins.spec.offload = words;
    ComposedSearch search(model, cluster, catalog, options, pins);
    Result<ComposedSearchResult> found = search.run();
    if (!found.ok() && found.status().code() != StatusCode::kOutOfMemory) return found;
    if (found.ok()) {
      // Items left when nothing had fitted yet.
      found->search.open += open;
      found->search.bound_s = std::min(found->search.bound_s, open_s);
      found->search.gap = 1 - found->search.bound_s / found->plan.time.step_s;
      return found;
    }
    open += search.left_over();
    open_s = std::min(open_s, search.left_over_bound());
  }
  return refuse_composed(model, cluster, catalog, options, given);
}

ComposedCertificate certificate_of(const ComposedSearchResult& result) {
  return {to_text(result.fastest.spec), result.fastest.time.step_s, result.search.bound_s, result.entries};
}

Result<CertificateCheck> check_certificate(const ComposedModel& model, const Cluster& cluster,
                                           const KernelCatalog& catalog, const ComposedSearchOptions& options,
                                           const ComposedCertificate& certificate) {
  TSR_ASSIGN_OR_RETURN(StrategyPins pins, parse_parallel(options.parallel));
  if (pins.spec.offload.automatic) pins.spec.offload = {};
  return CertificateChecker(model, cluster, catalog, options, pins, certificate).run();
}

}  // namespace tessera
