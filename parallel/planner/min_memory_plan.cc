#include "parallel/planner/min_memory_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/parallel_for.h"
#include "parallel/strategy/propagation.h"

namespace tessera {

namespace {

// Lowerings of one search, then around the smallest found.
constexpr int32_t kMost = 16, kMostAround = 4;
// Assumed factor over the bound of strategy kinds that were never lowered.
constexpr double kUnseen = 2;
// Smallest expected factor, relative to the closest of its kind.
constexpr double kCloser = 0.8;
// Number of closest strategies lowered with all micro-batches.
constexpr size_t kWhole = 2;
// Lowered at a time, independent of threads.
constexpr size_t kAtOnce = 2;
// Relative error of extrapolating from few micro-batches.
constexpr int64_t kSlackOf = 64;

struct Possible {
  SpaceNode node;
  int64_t bytes = 0;  // lower bound
};

// Lower bound of its bytes on the fullest rank.
int64_t least_bytes(const MinMemorySpace& space, const StrategySpec& spec) {
  const int64_t lasting = space.bounds.persistent_bytes(spec), working = space.bounds.working_bytes(spec);
  // In a pipeline the two may be on different stages.
  return std::max(space.bounds.bytes(spec), spec.pp == 1 ? lasting + working : std::max(lasting, working));
}

// Excludes roots that need no less than another: kept gathers, schedules
// other than 1F1B, other context forms. State and gradients wait on the host,
// so spreading them saves nothing; spreading weights saves only with chunks.
bool may_be_smallest(const StrategySpec& root) {
  return !root.keep && (root.pp == 1 || root.schedule == ScheduleKind::k1F1B) &&
         (root.cp == 1 || root.context == ContextForm::kRing) && (root.zero == 0 || root.zero == 3);
}

// All nodes below a root in its smallest micro-batches.
std::vector<SpaceNode> smallest_of(const MinMemorySpace& space, const StrategySpec& root) {
  const auto below = [&](const SpaceNode& node) { return savings_of(node, space.graph, space.pins, false); };
  const auto is_cut = [](const SpaceNode& it) { return it.last == SavingStep::kMicroBatch; };
  std::vector<SpaceNode> all = {{root, SavingStep::kNone}};
  for (auto next = below(all[0]); !next.empty() && is_cut(next[0]); next = below(all[0])) all[0] = next[0];
  for (size_t i = 0; i < all.size(); ++i)
    for (SpaceNode& it : below(all[i]))
      if (!is_cut(it)) all.push_back(std::move(it));
  return all;
}

bool all_away(const OffloadWords& words) {
  return words.params != Tier::kDevice && words.grads != Tier::kDevice && words.optimizer != Tier::kDevice &&
         words.activations != Tier::kDevice;
}

// The root's node likely to need least. Recomputing what may wait on the host never helped.
bool saves_most(const SpaceNode& node, int32_t most_chunks) {
  return all_away(node.spec.offload) && node.spec.recompute == RecomputeForm::kNone &&
         node.spec.chunks == most_chunks;
}

StrategyFamily family_of(const StrategySpec& spec) {
  return StrategyFamily(spec.dp > 1, spec.tp > 1, spec.cp > 1, spec.ep > 1, spec.pp > 1, spec.form,
                    spec.zero == 3, spec.chunks, spec.recompute, spec.offload.params,
                    spec.offload.activations);
}

class Search {
 public:
  Search(const MinMemorySpace& space, MinMemoryGoal goal) : space_(space), goal_(goal) {}

  Result<std::optional<PlanAttempt>> run() {
    look_around();
    return smallest();
  }

  std::optional<LikelyPlan> likely() {
    sizes_only_ = true;
    look_around();
    return std::move(likely_);
  }

 private:
  void look_around() {
    for (const StrategySpec& root : space_.roots) {
      if (!may_be_smallest(root)) continue;
      const std::vector<SpaceNode> nodes = smallest_of(space_, root);
      int32_t chunks = 1;
      for (const SpaceNode& it : nodes) chunks = std::max(chunks, it.spec.chunks);
      for (const SpaceNode& it : nodes)
        if (saves_most(it, chunks)) add(it);
    }
    look(kMost);
    if (!sized_.empty() && !found()) {
      // Around the smallest: other savings.
      open_.clear();
      const StrategySpec mesh = sized_.begin()->second.spec;
      for (const StrategySpec& root : space_.roots)
        if (same_mesh(root, mesh))
          for (const SpaceNode& it : smallest_of(space_, root)) add(it);
      look(kMostAround);
    }
  }

  static bool same_mesh(const StrategySpec& a, const StrategySpec& b) {
    return a.dp == b.dp && a.tp == b.tp && a.sp == b.sp && a.cp == b.cp && a.ep == b.ep && a.pp == b.pp &&
           a.form == b.form && a.grid == b.grid && a.zero == b.zero && a.keep == b.keep &&
           a.schedule == b.schedule && (a.pp == 1 || a.micro_batch == b.micro_batch);
  }

  void add(const SpaceNode& node) {
    if (!seen_.insert(to_text(node.spec)).second) return;
    cancellation_point();
    const int64_t bytes = least_bytes(space_, node.spec);
    if (!goal_.nothing_else || bytes <= goal_.enough) open_.push_back({node, bytes});
  }

  std::optional<double> seen_factor(const Possible& it) const { return factors_.of(family_of(it.node.spec)); }

  double factor_of(const Possible& it) const { return seen_factor(it).value_or(kUnseen); }

  bool found() const { return enough_ || likely_; }

  bool is_spent() const { return goal_.effort != nullptr && goal_.effort->left <= 0; }

  // The next one worth lowering, by present knowledge.
  std::optional<Possible> next() {
    while (!open_.empty()) {
      const auto at = std::ranges::min_element(
          open_, {}, [&](const Possible& it) { return static_cast<double>(it.bytes) * factor_of(it); });
      const Possible it = std::move(*at);
      open_.erase(at);
      const double hoped = static_cast<double>(it.bytes) * std::max(1.0, kCloser * factor_of(it));
      if (!sized_.empty() && hoped >= static_cast<double>(sized_.begin()->first)) continue;
      if (goal_.nothing_else && seen_factor(it) && hoped > static_cast<double>(goal_.enough)) continue;
      return it;
    }
    return std::nullopt;
  }

  void look(int32_t most) {
    for (int32_t lowerings = 0; lowerings < most && !found() && !is_spent();) {
      std::vector<Possible> together;
      while (together.size() < std::min(kAtOnce, static_cast<size_t>(most - lowerings))) {
        std::optional<Possible> it = next();
        if (!it) break;
        together.push_back(std::move(*it));
      }
      if (together.empty()) return;
      std::vector<Sized> sizes(together.size());
      const auto size_one = [&](size_t i) { sizes[i] = size_of(together[i].node); };
      if (goal_.on_two_threads)
        parallel_for(together.size(), size_one);
      else
        for (size_t i = 0; i < together.size(); ++i) size_one(i);
      for (size_t i = 0; i < together.size() && !found(); ++i)
        if (take(together[i], sizes[i])) ++lowerings;
    }
  }

  // Sized: measured with as few micro-batches as show the peak.
  struct Sized {
    bool lowered = false;
    int64_t bytes = 0, instructions = 0;
    int64_t few = 1, count = 1;  // micro-batches lowered, and of the step
  };

  Sized size_of(const SpaceNode& node) const {
    const auto count = micro_batches_of(node.spec, space_.graph.batch, space_.graph.may_cut);
    if (!count.ok()) return {};
    const int64_t few = std::min<int64_t>(*count, 2 * node.spec.pp);
    const PlanAttempt it = space_.trials.size_of_batch(node, space_.graph.batch / *count * few);
    return {it.lowered, it.candidate.arena_bytes, it.instructions, few, *count};
  }

  bool take(const Possible& it, const Sized& sized) {
    if (!sized.lowered) return false;
    if (goal_.effort != nullptr) goal_.effort->left -= sized.instructions;
    // Further micro-batches add only their inputs.
    int64_t size = sized.bytes +
                   space_.bounds.input_bytes(it.node.spec) * (sized.count - sized.few) / sized.count;
    if (sizes_only_) {
      if (size <= goal_.enough + goal_.enough / kSlackOf)
        likely_ = LikelyPlan{it.node, sized.instructions * sized.count / sized.few};
    } else if (size <= goal_.enough) {
      PlanAttempt whole = space_.trials.make(it.node);
      if (!whole.lowered) return true;
      size = whole.candidate.arena_bytes;
      if (size <= goal_.enough) enough_ = std::move(whole);
    }
    sized_.emplace(size, it.node);
    factors_.learn(family_of(it.node.spec),
                   static_cast<double>(size) / static_cast<double>(std::max<int64_t>(1, it.bytes)));
    return true;
  }

  Result<std::optional<PlanAttempt>> smallest() {
    std::optional<PlanAttempt> best = std::move(enough_);
    size_t made = best ? kWhole : 0;
    for (const auto& [size, node] : sized_) {
      if (made == kWhole) break;
      if (goal_.nothing_else && size > goal_.enough + goal_.enough / kSlackOf) break;
      PlanAttempt it = space_.trials.make(node);
      if (!it.lowered) continue;
      ++made;
      if (!best || it.candidate.arena_bytes < best->candidate.arena_bytes) best = std::move(it);
    }
    // Ranks other than the first may need slightly more.
    if (best) TSR_RETURN_IF_ERROR(space_.trials.lower_whole(*best));
    return best;
  }

  const MinMemorySpace& space_;
  const MinMemoryGoal goal_;
  std::vector<Possible> open_;
  std::set<std::string> seen_;  // by strategy text
  HeldFactors own_factors_;
  HeldFactors& factors_ = goal_.factors != nullptr ? *goal_.factors : own_factors_;
  std::multimap<int64_t, SpaceNode> sized_;  // by approximate bytes
  std::optional<PlanAttempt> enough_;
  bool sizes_only_ = false;
  std::optional<LikelyPlan> likely_;
};

}  // namespace

bool exceeds_memory(const MinMemorySpace& space, int64_t limit) {
  return std::ranges::all_of(space.roots, [&](const StrategySpec& root) {
    return std::ranges::all_of(smallest_of(space, root),
                               [&](const SpaceNode& node) { return least_bytes(space, node.spec) > limit; });
  });
}

int64_t least_plan_bytes(const MinMemorySpace& space) {
  int64_t least = INT64_MAX;
  for (const StrategySpec& root : space.roots)
    for (const SpaceNode& node : smallest_of(space, root)) least = std::min(least, least_bytes(space, node.spec));
  return least;
}

Result<std::optional<PlanAttempt>> find_min_memory_plan(const MinMemorySpace& space, MinMemoryGoal goal) {
  return Search(space, goal).run();
}

std::optional<LikelyPlan> find_likely_plan(const MinMemorySpace& space, MinMemoryGoal goal) {
  goal.nothing_else = true;
  return Search(space, goal).likely();
}

}  // namespace tessera
