// Best first: configurations come up in the order of their lower bounds; one is lowered, simulated on all its
// ranks and sized, and what saves memory at the price of time comes up only where it does not fit. No closed
// form stands in for the program: bounds only say what need not be looked at.
#include "parallel/planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "graph/base/text.h"
#include "parallel/apply_pins.h"
#include "parallel/cost_model.h"
#include "parallel/fewest_devices.h"
#include "parallel/lower.h"
#include "parallel/one_kind.h"
#include "parallel/plan_bound.h"
#include "parallel/plan_space.h"
#include "parallel/propagation.h"
#include "parallel/recompute_search.h"
#include "parallel/recompute_set.h"
#include "parallel/refine_plan.h"
#include "parallel/simulator.h"
#include "parallel/stage_cut.h"
#include "parallel/strategy.h"

namespace tessera {

namespace {

constexpr std::string_view kEntry = "step";
// Lowerings that a search may spend once it has a plan, and before it has one.
constexpr int64_t kMostWithPlan = 24, kMostWithout = 160;
// Configurations for which, once there is a plan, a set of activations to recompute is looked for.
constexpr int64_t kMostSets = 6;
// After so many that did not fit, what comes of the smallest is looked at first.
constexpr int64_t kBeforeSmallest = 40;

struct Attempt {
  SpaceNode node;
  Candidate candidate;
  Plan plan;
  std::string peak;
  int64_t collectives = 0;
  bool lowered = false;
  bool exact = false;  // all ranks lowered and simulated
  int64_t limit = 0;   // that its set of activations was made to fit
  Status failure;
  bool fits() const { return candidate.rejected.empty(); }
};

// A configuration that has come up.
struct Open {
  double bound_s = 0;   // no step of it is faster
  double likely_s = 0;  // nor likely faster than what it saves memory from, which orders and ends the search
  size_t order = 0;
  SpaceNode node;
  uint32_t kind = 0;
  int64_t saves_from = INT64_MAX;  // bytes of what it saves memory from
};

// Which kinds of parallelism a strategy mixes: those of one kind miss their bounds by like factors.
uint32_t kind_of(const StrategySpec& spec) {
  return (spec.dp > 1 ? 1U : 0U) | (spec.tp > 1 ? 2U : 0U) | (spec.cp > 1 ? 4U : 0U) |
         (spec.ep > 1 ? 8U : 0U) | (spec.pp > 1 ? 16U : 0U) | (spec.form != TensorForm::k1d ? 32U : 0U);
}

// What each thing that a strategy does tends to add to its bound: meetings, launches, uneven parts. Simple
// strategies so come first, and the plan is good by the time that bounds are put to it.
double usual_overhead(const StrategySpec& spec) {
  double share = 0.001 * (spec.devices() - 1);
  if (spec.dp > 1) share += 0.02;
  if (spec.tp > 1) share += spec.form == TensorForm::k1d ? 0.1 : 0.3;
  if (spec.cp > 1) share += 0.1;
  if (spec.ep > 1) share += 0.03;
  if (spec.pp > 1) share += spec.schedule == ScheduleKind::k1F1B ? 0.03 : 0.05;
  if (spec.zero == 3) share += 0.03;
  if (spec.micro_batch > 0) share += 0.02;
  if (spec.chunks > 1) share += 0.1;
  if (spec.recompute == RecomputeForm::kFull) share += 0.2;
  if (spec.recompute == RecomputeForm::kSome) share += 0.1;
  if (spec.offload.any()) share += 0.1;
  return share;
}

bool trains(const Graph& graph) { return !graph.gradients().empty(); }

int64_t memory_limit(const Cluster& cluster, const PlanOptions& options) {
  if (options.memory_limit > 0) return options.memory_limit;
  int64_t limit = INT64_MAX;
  for (const int32_t kind : cluster.devices) {
    const int64_t bytes = cluster.kinds[static_cast<size_t>(kind)].memory_bytes;
    if (bytes > 0) limit = std::min(limit, bytes);
  }
  return limit;
}

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
        limit_(memory_limit(cluster, options)) {}

  Result<PlanResult> run() {
    TSR_ASSIGN_OR_RETURN(bound_graph_, graph_.bind_partly(options_.symbols));
    space_ = space_of(graph_, options_.global_batch, tokens());
    TSR_ASSIGN_OR_RETURN(const std::vector<StrategySpec> roots, settle_roots());
    PlanBounds bounds(bound_graph_, space_, cluster_, catalog_);
    // With one thing to try there is nothing to compare.
    if (roots.size() > 1) bounds_ = &bounds;
    // Whoever gives words means what they name: options that they leave open stay off unless that does not
    // fit.
    std::vector<StrategySpec> plain, others;
    for (const StrategySpec& spec : roots) (is_as_worded(spec) ? plain : others).push_back(spec);
    for (const StrategySpec& spec : plain) come_up({spec, SavingStep::kNone}, 0);
    TSR_ASSIGN_OR_RETURN(size_t best, explore());
    if (best == attempts_.size() && !others.empty()) {
      for (const StrategySpec& spec : others) come_up({spec, SavingStep::kNone}, 0);
      for (const SpaceNode& node : std::exchange(held_back_, {})) come_up(node, 0);
      may_save_ = true;
      TSR_ASSIGN_OR_RETURN(best, explore());
    }
    if (best == attempts_.size()) return nothing_fits();
    TSR_ASSIGN_OR_RETURN(best, recompute_some(best));
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
      // The same cut into micro-batches where this batch admits it.
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

  // --- the queue ---

  void come_up(const SpaceNode& node, double at_least_s, int64_t saves_from = INT64_MAX) {
    ++search_.configurations;
    double bound_s = 0, likely_s = at_least_s;
    if (bounds_ != nullptr && options_.like == nullptr) {
      bound_s = bounds_->seconds(node.spec);
      // Of its own work alone: what savings add is in the overheads that order the search.
      StrategySpec plain = node.spec;
      plain.recompute = RecomputeForm::kNone;
      plain.offload = {};
      likely_s = std::max(likely_s, bounds_->seconds(plain));
    }
    queue_.push_back({bound_s, likely_s, next_order_++, node, kind_of(node.spec), saves_from});
  }

  // Orders the search, closes nothing: the bound, times what strategies of its kinds were found to take more.
  double guess_s(const Open& open) const {
    double factor = 1;
    for (const auto& [kind, seen] : factors_)
      if ((kind & ~open.kind) == 0) factor = std::max(factor, seen);
    return open.likely_s * (factor + usual_overhead(open.node.spec));
  }

  // By guess; or the kinds of strategies in turn, of each what saves from the smallest.
  Open take_next(bool smallest_first) {
    const auto score = [&](const Open& open) {
      if (!smallest_first) return std::pair{int64_t{0}, guess_s(open)};
      const auto looked_at = looked_at_.find(open.kind);
      return std::pair{looked_at == looked_at_.end() ? int64_t{0} : looked_at->second,
                       static_cast<double>(open.saves_from)};
    };
    size_t next = 0;
    auto least = score(queue_[0]);
    for (size_t i = 1; i < queue_.size(); ++i) {
      const auto it = score(queue_[i]);
      if (it < least || (it == least && queue_[i].order < queue_[next].order)) next = i, least = it;
    }
    Open open = std::move(queue_[next]);
    queue_[next] = std::move(queue_.back());
    queue_.pop_back();
    return open;
  }

  // Until nothing that is open can be faster than the fastest that fits, which is returned with all its ranks
  // lowered; the number of attempts when none fits.
  Result<size_t> explore() {
    for (;;) {
      size_t best = fastest();
      while (!queue_.empty()) {
        const bool found = best < attempts_.size();
        if (!found) without_ = search_.solved;
        if (found ? search_.solved - without_ >= kMostWithPlan : search_.solved >= kMostWithout) break;
        Open open = take_next(!found && search_.solved >= kBeforeSmallest);
        if (found && std::max(open.likely_s * likely_trust_, open.bound_s * trust_) >=
                         attempts_[best].candidate.step_time_s) {
          closed_.push_back(std::move(open));
          continue;
        }
        look_at(open);
        best = fastest();
      }
      if (best == attempts_.size() || attempts_[best].exact) return best;
      TSR_RETURN_IF_ERROR(settle(best));
      // Its time may have risen, and with it what its bound closes.
      for (Open& open : std::exchange(closed_, {})) queue_.push_back(std::move(open));
    }
  }

  // With a plan in hand: what is too large only when it keeps everything, and else faster than the plan, with
  // no more computed again than the limit asks for. What is likely to lose least comes first.
  Result<size_t> recompute_some(size_t best) {
    if (!may_save_ || has_words_ || options_.like != nullptr || !space_.trains) return best;
    std::vector<std::pair<double, SpaceNode>> order;
    const double rate = cluster_.kinds.empty() ? 0 : cluster_.kinds[0].memory_bytes_per_s;
    for (const Attempt& it : attempts_) {
      if (!it.lowered || it.fits() || it.node.spec.recompute != RecomputeForm::kNone) continue;
      const auto excess = static_cast<double>(it.candidate.arena_bytes - limit_);
      SpaceNode node{it.node.spec, SavingStep::kRecompute};
      node.spec.recompute = RecomputeForm::kSome;
      // Reading two values to write one again: what the cheapest operations take.
      order.push_back({it.candidate.step_time_s + (rate > 0 ? 3 * excess / rate : 0), node});
    }
    std::ranges::stable_sort(order, {}, [](const auto& it) { return it.first; });
    int64_t more = 0;
    for (const auto& [likely_s, node] : order) {
      if (likely_s >= attempts_[best].candidate.step_time_s || more++ == kMostSets) break;
      ++search_.configurations;
      attempts_.push_back(attempt(node, limit_, attempts_[best].candidate.step_time_s));
      const Attempt& it = attempts_.back();
      ++(it.lowered ? search_.solved : search_.refused);
      if (it.lowered && !it.fits()) ++search_.too_large;
      best = fastest();
    }
    while (!attempts_[best].exact) {
      TSR_RETURN_IF_ERROR(settle(best));
      best = fastest();
    }
    return best;
  }

  void look_at(const Open& open) {
    if (bounds_ != nullptr && bounds_->lasting_bytes(open.node.spec) > limit_) {
      ++search_.too_large;
      hopeless_.push_back(open.node);
      return save(open.node, open.likely_s, bounds_->lasting_bytes(open.node.spec));
    }
    attempts_.push_back(attempt(open.node));
    ++looked_at_[open.kind];
    const Attempt& it = attempts_.back();
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
    if (open.likely_s > 0) {
      const double factor = seconds / open.likely_s - usual_overhead(open.node.spec);
      const auto [at, is_new] = factors_.try_emplace(open.kind, factor);
      if (!is_new) at->second = std::min(at->second, factor);
    }
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

  // --- one configuration ---

  // `limit`: what a set of activations to recompute is made to fit; `beat_s`: a step that takes as long is of
  // no use.
  Attempt attempt(const SpaceNode& node) const { return attempt(node, limit_, INFINITY); }
  Attempt attempt(const SpaceNode& node, int64_t limit, double beat_s) const {
    Attempt it = planned(node);
    if (!it.failure.ok()) return it;
    it.limit = limit;
    if (node.spec.recompute == RecomputeForm::kSome) return with_set(std::move(it), beat_s);
    if (const Status status = lower_all_alike(it); !status.ok()) return refuse(std::move(it), status);
    return it;
  }

  Attempt planned(const SpaceNode& node) const {
    const StrategySpec& spec = node.spec;
    Attempt it;
    it.node = node;
    it.candidate.strategy = to_text(spec);
    PropagationOptions options;
    options.spec = spec;
    options.global_batch = options_.global_batch;
    options.may_replicate_batch = !trains(graph_);
    if (options_.like != nullptr) {
      options.stored = stored_like();
      options.owners = owners_of(*options_.like_graph, *options_.like);
    } else {
      options.owners = pinned_owners(graph_, options_.pins);
    }
    auto plan = propagate(bound_graph_, options);
    if (!plan.ok()) return refuse(std::move(it), plan.status());
    it.plan = std::move(*plan);
    if (options_.like == nullptr)
      if (const Status pinned = apply_pins(bound_graph_, options_.pins, it.plan); !pinned.ok())
        return refuse(std::move(it), pinned);
    it.plan.graph_fingerprint = graph_.fingerprint();
    it.plan.symbols = options_.symbols;
    return it;
  }

  EntrySpec entry_of(const Attempt& it) const { return {std::string(kEntry), &graph_, &it.plan}; }

  Status lower_all_alike(Attempt& it) const {
    TSR_ASSIGN_OR_RETURN(const Program program, lower_alike(entry_of(it), catalog_));
    TSR_RETURN_IF_ERROR(take(it, program));
    it.lowered = true;
    return {};
  }

  // The cheapest set of activations that fits, found on the program that keeps all; the smallest that was
  // seen when none does.
  Attempt with_set(Attempt base, double beat_s) const {
    const auto program = lower_alike(entry_of(base), catalog_);
    if (!program.ok()) return refuse(std::move(base), program.status());
    if (const Status status = take(base, *program); !status.ok()) return refuse(std::move(base), status);
    base.lowered = true;
    if (base.candidate.arena_bytes <= base.limit) {
      base.node.spec.recompute = RecomputeForm::kNone;
      base.candidate.strategy = base.plan.strategy = to_text(base.node.spec);
      return base;
    }
    const auto may_repeat = [&](TensorId id) { return may_recompute(graph_, options_.pins, id); };
    const auto choices = RecomputeOptions::of(entry_of(base), *program, cluster_, may_repeat);
    if (!choices.ok()) return refuse(std::move(base), choices.status());
    std::vector<TensorId> all = block_activations(bound_graph_);
    std::erase_if(all, [&](TensorId id) { return !may_repeat(id); });
    std::map<std::vector<TensorId>, Attempt> tried;
    const auto measure = [&](const std::vector<TensorId>& set) -> Result<MeasuredSet> {
      auto at = tried.find(set);
      if (at == tried.end()) {
        Attempt it = base;
        it.plan.recompute = set;
        std::erase_if(it.plan.offload, [&](const OffloadedTensor& moved) {
          return std::ranges::binary_search(set, moved.tensor);
        });
        TSR_RETURN_IF_ERROR(lower_all_alike(it));
        at = tried.emplace(set, std::move(it)).first;
      }
      return MeasuredSet{at->second.candidate.step_time_s, at->second.plan.estimate.arena_bytes};
    };
    const auto found = search_recompute_set(*choices, base.plan.estimate.arena_bytes, base.limit, all,
                                            measure, {.beat_s = beat_s});
    if (!found.ok()) return refuse(std::move(base), found.status());
    if (*found) return std::move(tried.at(**found));
    Attempt least = std::move(base);
    for (auto& [set, it] : tried)
      if (it.candidate.arena_bytes < least.candidate.arena_bytes) least = std::move(it);
    return least;
  }

  static Attempt refuse(Attempt it, const Status& status) {
    it.failure = status;
    it.candidate.rejected = std::string(status.message());
    return it;
  }

  // Time and size of its program.
  Status take(Attempt& it, const Program& program) const {
    TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, kEntry, cluster_));
    it.candidate.step_time_s = simulation.seconds();
    const Price first = price(program.ranks[0], kEntry, cluster_, static_cast<int32_t>(program.ranks.size()));
    it.collectives = first.collectives;
    PlanEstimate& estimate = it.plan.estimate;
    estimate.step_time_s = simulation.seconds();
    estimate.compute_s = first.compute_s;
    estimate.communication_s = first.communication_s;
    estimate.arena_bytes.assign(static_cast<size_t>(devices_), 0);  // idle devices hold nothing
    it.candidate.arena_bytes = 0;
    int32_t fullest = 0;
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      const RankProgram& part = program.ranks[rank];
      if (rank < estimate.arena_bytes.size()) estimate.arena_bytes[rank] = part.arena_bytes;
      if (part.arena_bytes <= it.candidate.arena_bytes && rank > 0) continue;
      it.candidate.arena_bytes = part.arena_bytes;
      it.peak = part.peak;
      fullest = static_cast<int32_t>(rank);
    }
    it.candidate.rejected.clear();
    if (it.candidate.arena_bytes > limit_)
      it.candidate.rejected = format("needs {} on device {}, the limit is {}",
                                     bytes_text(it.candidate.arena_bytes), fullest, bytes_text(limit_));
    return {};
  }

  // All its ranks, as they will run: another than the first may need a few buffers more (zeros beside an
  // addend). A set that so turns out too large is chosen again, with as much less to fit in.
  Status settle(size_t which) {
    Attempt& it = attempts_[which];
    const EntrySpec entry = entry_of(it);
    TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), catalog_));
    TSR_RETURN_IF_ERROR(take(it, program));
    it.exact = true;
    if (it.fits()) return {};
    ++search_.too_large;
    const int64_t excess = it.candidate.arena_bytes - limit_;
    if (it.node.spec.recompute == RecomputeForm::kSome && it.limit > 0 && it.limit == limit_) {
      Attempt smaller = attempt(it.node, limit_ - excess, INFINITY);
      smaller.limit = limit_ - excess;
      attempts_.push_back(std::move(smaller));
      return {};
    }
    save(it.node, it.candidate.step_time_s, it.candidate.arena_bytes);
    return {};
  }

  std::map<std::string, ShardingSpec> stored_like() const {
    std::map<std::string, ShardingSpec> stored;
    for (const StoredTensor& tensor : options_.like->stored) {
      const Tensor& known = options_.like_graph->tensor(tensor.tensor);
      if (known.kind != TensorKind::kInput && known.kind != TensorKind::kActivation)
        stored[known.name] = tensor.placements[0].stored;
    }
    return stored;
  }

  // Those that fit, fastest first; then those that were too large, smallest first; then those that cannot be
  // made.
  static bool better(const Attempt& a, const Attempt& b) {
    const auto rank = [](const Attempt& it) { return it.fits() ? 0 : it.lowered ? 1 : 2; };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (rank(a) == 1) return a.candidate.arena_bytes < b.candidate.arena_bytes;
    if (a.candidate.step_time_s != b.candidate.step_time_s)
      return a.candidate.step_time_s < b.candidate.step_time_s;
    return a.collectives < b.collectives;
  }

  // --- the answer ---

  // No step of the node, or of what saves memory from it, is faster: what cannot fit is left for what is
  // below.
  double bound_below(const SpaceNode& node) {
    if (bounds_ == nullptr || options_.like != nullptr) return 0;
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

  PlanResult result_of(size_t best) {
    PlanResult result;
    result.plan = std::move(attempts_[best].plan);
    const double time_s = result.plan.estimate.step_time_s;
    search_.bound_s = time_s;
    closed_.insert(closed_.end(), queue_.begin(), queue_.end());
    for (Open& open : closed_) open.bound_s = bound_below(open.node) * trust_;
    std::ranges::sort(closed_, [](const Open& a, const Open& b) {
      return a.bound_s != b.bound_s ? a.bound_s < b.bound_s : a.order < b.order;
    });
    for (const Open& open : closed_) {
      ++(open.bound_s >= time_s ? search_.closed_by_bound : search_.open);
      search_.bound_s = std::min(search_.bound_s, open.bound_s);
      constexpr size_t kListed = 64;
      if (search_.closed.size() < kListed && std::isfinite(open.bound_s))
        search_.closed.push_back({to_text(open.node.spec), open.bound_s});
    }
    // Sets of activations to recompute that were not looked at.
    if (may_save_ && !has_words_ && bounds_ != nullptr && space_.trains) {
      for (const Attempt& it : attempts_)
        if (it.lowered && !it.fits())
          search_.bound_s = std::min(search_.bound_s, bound_of_sets(it.node) * trust_);
      for (const SpaceNode& node : hopeless_)
        search_.bound_s = std::min(search_.bound_s, bound_of_sets(node) * trust_);
    }
    search_.gap = bounds_hold_ ? (time_s - search_.bound_s) / time_s : -1;
    result.plan.estimate.gap = search_.gap;
    std::rotate(attempts_.begin(), attempts_.begin() + static_cast<std::ptrdiff_t>(best),
                attempts_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::stable_sort(attempts_.begin() + 1, attempts_.end(), better);
    for (Attempt& it : attempts_) result.candidates.push_back(std::move(it.candidate));
    result.search = std::move(search_);
    return result;
  }

  Result<PlanResult> nothing_fits() {
    // What its parameters alone ruled out may still be the smallest.
    std::ranges::stable_sort(hopeless_, {},
                             [&](const SpaceNode& it) { return bounds_->lasting_bytes(it.spec); });
    int64_t more = 0;
    for (const SpaceNode& node : hopeless_) {
      int64_t least = INT64_MAX;
      for (const Attempt& it : attempts_)
        if (it.lowered) least = std::min(least, it.candidate.arena_bytes);
      if (bounds_->lasting_bytes(node.spec) >= least || more++ == kMostWithPlan) break;
      attempts_.push_back(attempt(node));
    }
    std::ranges::stable_sort(attempts_, better);
    if (attempts_.empty()) return Status(StatusCode::kInvalidArgument, "there is no strategy to try");
    for (;;) {
      Attempt& least = attempts_[0];
      if (!least.lowered)
        return least.failure.with_context(format("strategy '{}'", least.candidate.strategy));
      if (!least.exact) {
        TSR_RETURN_IF_ERROR(settle(0));
        std::ranges::stable_sort(attempts_, better);
        continue;
      }
      if (options_.least_limit != nullptr) *options_.least_limit = least.candidate.arena_bytes;
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
  SpaceOfGraph space_;
  StrategyPins pins_;
  bool has_words_ = false;
  bool may_save_ = true;  // what saves memory may come up
  PlanBounds* bounds_ = nullptr;
  bool bounds_hold_ = true;
  std::map<uint32_t, int64_t> looked_at_;  // by kind, how many were lowered
  double trust_ = 1;                       // bounds count for that much
  double likely_trust_ = 1;                // and what is likely
  std::map<uint32_t, double> factors_;     // by kind: the least found between simulated steps and bounds
  std::vector<Open> queue_;
  std::vector<Open> closed_;  // by their bounds
  size_t next_order_ = 0;
  std::vector<SpaceNode> held_back_;  // while what is as worded may still fit
  std::vector<SpaceNode> hopeless_;   // too large by parameters and state alone
  std::vector<Attempt> attempts_;
  PlanSearch search_;
  int64_t without_ = 0;  // lowerings before there was a plan
};

// The number of devices of the same kinds that would do under the same limit.
Result<std::string> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                    PlanOptions options) {
  const auto given = static_cast<int32_t>(cluster.devices.size());
  const int32_t most = std::max(16, 4 * given);
  std::string strategy;
  options.advise = false;
  options.memory_limit = memory_limit(cluster, options);
  const auto fits = [&](int32_t count) -> Result<bool> {
    Cluster larger = cluster;
    larger.devices.resize(static_cast<size_t>(count), cluster.devices.back());
    const Result<PlanResult> planned = make_plan(graph, larger, catalog, options);
    // Words may not admit this number of devices at all.
    if (planned.ok()) strategy = planned->plan.strategy;
    return planned.ok();
  };
  // Without words a plan may leave devices idle.
  TSR_ASSIGN_OR_RETURN(const std::optional<int32_t> count,
                       fewest_devices(given, most, options.parallel.empty(), fits));
  if (!count) return format("Up to {} devices would not do either", most);
  return format("The smallest number of devices that would do is {}, with '{}'", *count, strategy);
}

}  // namespace

Result<PlanResult> make_plan(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                             const PlanOptions& options) {
  TSR_ASSIGN_OR_RETURN(const Cluster cluster, of_one_kind(given));
  if (options.like != nullptr && options.like_graph == nullptr)
    return Status(StatusCode::kInvalidArgument, "PlanOptions.like wants like_graph beside it");
  TSR_RETURN_IF_ERROR(check_pins(graph, options.pins));
  Result<PlanResult> result = Search(graph, cluster, catalog, options).run();
  if (result.ok() || result.status().code() != StatusCode::kOutOfMemory || !options.advise ||
      options.like != nullptr)
    return result;
  TSR_ASSIGN_OR_RETURN(const std::string advice, devices_that_do(graph, cluster, catalog, options));
  return Status(StatusCode::kOutOfMemory, format("{}. {}", result.status().message(), advice));
}

}  // namespace tessera
