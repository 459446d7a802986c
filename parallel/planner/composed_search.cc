#include "parallel/planner/composed_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <tuple>

#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "parallel/planner/composed_bound.h"
#include "parallel/planner/composed_space.h"
#include "parallel/planner/composed_refusal.h"
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

// OpenItem: a group to profile, or a plan to compose.
struct OpenItem {
  double bound_s = 0;
  size_t order = 0;
  int32_t group = 0;
  std::optional<StrategySpec> plan;
  friend bool operator<(const OpenItem& a, const OpenItem& b) {  // of a queue that yields the largest first
    return a.bound_s != b.bound_s ? a.bound_s > b.bound_s : a.order > b.order;
  }
};

class ComposedSearch {
 public:
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
      if (groups_[g].parent < 0)
        push({.bound_s = 0, .order = 0, .group = static_cast<int32_t>(g), .plan = {}});
    for (int64_t most = kMostWithout; !open_.empty() && !is_closed(open_.top()) && composed_ < most;
         most = best_ ? found_at_ + kMostComposed : kMostWithout) {
      cancellation_point();
      report_progress(static_cast<double>(composed_) / static_cast<double>(most));
      for (const OpenItem& item : next_items())
        if (is_closed(item))
          open_.push(item);
        else
          item.plan ? look_at(item) : profile(item);
    }
    if (!best_) return Status(StatusCode::kOutOfMemory, "no plan fits");
    return answer();
  }

  // Items not reached by a run without result.
  int64_t left_over() const { return static_cast<int64_t>(open_.size()); }
  double left_over_bound() const { return open_.empty() ? INFINITY : open_.top().bound_s * trust_; }

 private:
  void push(OpenItem item) {
    item.order = order_++;
    if (item.plan) ++result_.search.configurations;
    open_.push(std::move(item));
  }

  bool is_closed(const OpenItem& item) const { return best_ && item.bound_s * trust_ >= best_->time.step_s; }

  // The next few items, profiled in parallel; their number is independent of threads, for determinism.
  std::vector<OpenItem> next_items() {
    constexpr size_t kAtOnce = 4;
    std::vector<OpenItem> items;
    std::vector<PlanComposer::Wanted> wanted;
    for (; items.size() < kAtOnce && !open_.empty() && !is_closed(open_.top()); open_.pop()) {
      items.push_back(open_.top());
      const OpenItem& it = items.back();
      wanted.push_back(it.plan ? PlanComposer::Wanted{*it.plan}
                               : GroupBound::wanted(groups_[static_cast<size_t>(it.group)].spec));
    }
    composer_.prepare(wanted);
    return items;
  }

  // A group's bound also holds for those that split its sequences further.
  void profile(const OpenItem& item) {
    const auto g = static_cast<size_t>(item.group);
    const PlanGroup& group = groups_[g];
    double bound_s = item.bound_s;
    is_dead_[g] = group.smaller >= 0 && is_dead_[static_cast<size_t>(group.smaller)];
    if (!is_dead_[g]) {
      if (Result<GroupBound> bound = GroupBound::of(group.spec, composer_); bound.ok()) {
        if (bound->seconds(devices_) < bound_s * trust_) trust_ = bound->seconds(devices_) / bound_s;
        bound_s = bound->seconds(devices_);
        is_dead_[g] = bound->bytes() > options_.memory_limit;
        if (!is_dead_[g]) open_plans(item.group, *bound);
      }
    }
    for (size_t child = 0; child < groups_.size(); ++child)
      if (groups_[child].parent == item.group)
        push({.bound_s = bound_s, .order = 0, .group = static_cast<int32_t>(child), .plan = {}});
  }

  void open_plans(int32_t group, GroupBound& bound) {
    for (StrategySpec& plan : space_.plans_of(groups_[static_cast<size_t>(group)].spec)) {
      const double bound_s = bound.seconds(plan);
      if (std::isinf(bound_s))
        ++result_.search.configurations, ++result_.search.too_large;
      else
        push({.bound_s = bound_s, .order = 0, .group = group, .plan = std::move(plan)});
    }
  }

  void look_at(const OpenItem& item) {
    Result<ComposedPlan> plan = composer_.compose(*item.plan);
    if (!plan.ok()) {
      ++result_.search.refused;
      return;
    }
    ++composed_, ++result_.search.solved;
    const double seconds = plan->time.step_s;
    trust_ = std::min(trust_, seconds / item.bound_s);
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
    for (; !open_.empty(); open_.pop()) {
      const OpenItem& item = open_.top();
      const double bound_s = item.bound_s * trust_;
      const bool is_open = bound_s < best_->time.step_s;
      if (item.plan || is_open) ++(is_open ? search.open : search.closed_by_bound);
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
  std::priority_queue<OpenItem> open_;
  size_t order_ = 0;
  double trust_ = 1;  // factor on bounds
  int64_t composed_ = 0, found_at_ = 0;
  std::optional<ComposedPlan> best_;
  std::vector<ComposedPlan> fitting_;
  ComposedSearchResult result_;
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
  TSR_ASSIGN_OR_RETURN(StrategyPins pins, parse_parallel(options.parallel));
  int64_t open = 0;
  double open_s = INFINITY;
  for (const OffloadWords& words : offloads(pins, offload_tier(cluster))) {
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
  return nothing_fits(model, cluster, catalog, options);
}

}  // namespace tessera
