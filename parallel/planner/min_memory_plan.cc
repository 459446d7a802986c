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
#include "parallel/planner/best_first.h"
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

using OpenNode = OpenPart<SpaceNode>;  // its bound: bytes

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

// An evaluator (best_first.h).
class Search {
 public:
  static constexpr bool kByBound = false;

  Search(const MinMemorySpace& space, MinMemoryGoal goal) : space_(space), goal_(goal) {}

  Result<std::optional<PlanAttempt>> run() {
    TSR_RETURN_IF_ERROR(look_around());
    return smallest();
  }

  std::optional<LikelyPlan> likely() {
    sizes_only_ = true;
    if (!look_around().ok()) return std::nullopt;
    return std::move(likely_);
  }

  // --- evaluator ---

  Result<bool> may_continue() {
    if (lowerings_ >= most_ || found() || (goal_.effort != nullptr && goal_.effort->left <= 0)) return false;
    open_.rank_again([&](const OpenNode& it) { return std::pair(it.bound * factor_of(it), 0.0); });
    return true;
  }

  // By present knowledge not worth lowering.
  bool is_closed(const OpenNode& it) const {
    const double hoped = it.bound * std::max(1.0, kCloser * factor_of(it));
    return (!sized_.empty() && hoped >= static_cast<double>(sized_.begin()->first)) ||
           (goal_.nothing_else && seen_factor(it) && hoped > static_cast<double>(goal_.enough));
  }

  size_t at_once() const { return std::min(kAtOnce, static_cast<size_t>(most_ - lowerings_)); }

  void prepare(const std::vector<OpenNode>& nodes) {
    sizes_.clear();
    std::vector<Sized> sizes(nodes.size());
    const auto size_one = [&](size_t i) { sizes[i] = size_of(nodes[i].part); };
    if (goal_.on_two_threads)
      parallel_for(nodes.size(), size_one);
    else
      for (size_t i = 0; i < nodes.size(); ++i) size_one(i);
    for (size_t i = 0; i < nodes.size(); ++i) sizes_.emplace(nodes[i].order, sizes[i]);
  }

  void evaluate(const OpenNode& it) {
    if (!found() && take(it, sizes_.at(it.order))) ++lowerings_;
  }

 private:
  Status look(int32_t most) {
    most_ = most, lowerings_ = 0;
    std::vector<OpenNode> closed;
    return search_best_first(*this, open_, closed);
  }

  Status look_around() {
    for (const StrategySpec& root : space_.roots) {
      if (!may_be_smallest(root)) continue;
      const std::vector<SpaceNode> nodes = smallest_of(space_, root);
      int32_t chunks = 1;
      for (const SpaceNode& it : nodes) chunks = std::max(chunks, it.spec.chunks);
      for (const SpaceNode& it : nodes)
        if (saves_most(it, chunks)) add(it);
    }
    TSR_RETURN_IF_ERROR(look(kMost));
    if (sized_.empty() || found()) return {};
    // Around the smallest: other savings.
    open_ = {};
    const StrategySpec mesh = sized_.begin()->second.spec;
    for (const StrategySpec& root : space_.roots)
      if (same_mesh(root, mesh))
        for (const SpaceNode& it : smallest_of(space_, root)) add(it);
    return look(kMostAround);
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
    if (!goal_.nothing_else || bytes <= goal_.enough) open_.push(node, static_cast<double>(bytes));
  }

  std::optional<double> seen_factor(const OpenNode& it) const { return factors_.of(family_of(it.part.spec)); }

  double factor_of(const OpenNode& it) const { return seen_factor(it).value_or(kUnseen); }

  bool found() const { return enough_ || likely_; }

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

  bool take(const OpenNode& it, const Sized& sized) {
    if (!sized.lowered) return false;
    if (goal_.effort != nullptr) goal_.effort->left -= sized.instructions;
    // Further micro-batches add only their inputs.
    int64_t size = sized.bytes +
                   space_.bounds.input_bytes(it.part.spec) * (sized.count - sized.few) / sized.count;
    if (sizes_only_) {
      if (size <= goal_.enough + goal_.enough / kSlackOf)
        likely_ = LikelyPlan{it.part, sized.instructions * sized.count / sized.few};
    } else if (size <= goal_.enough) {
      PlanAttempt whole = space_.trials.make(it.part);
      if (!whole.lowered) return true;
      size = whole.candidate.arena_bytes;
      if (size <= goal_.enough) enough_ = std::move(whole);
    }
    sized_.emplace(size, it.part);
    factors_.learn(family_of(it.part.spec),
                   static_cast<double>(size) / std::max(1.0, it.bound));
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
  OpenParts<SpaceNode> open_;
  int32_t most_ = 0, lowerings_ = 0;
  std::map<size_t, Sized> sizes_;  // by order, of those prepared
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
