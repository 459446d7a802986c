#include "parallel/planner/plan_attempt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/base/text.h"
#include "parallel/planner/recompute_search.h"
#include "parallel/planner/recompute_set.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/host_tier.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/apply_pins.h"
#include "parallel/strategy/propagation.h"
#include "parallel/strategy/refine_plan.h"
#include "parallel/strategy/stage_cut.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

namespace {

constexpr std::string_view kEntry = "step";

PlanAttempt refuse(PlanAttempt it, const Status& status) {
  it.failure = status;
  it.candidate.rejected = std::string(status.message());
  return it;
}

// Whether gradients are computed from a batch; an update alone finds them in state.
bool makes_gradients(const Graph& graph) {
  return std::ranges::any_of(graph.gradients(), [&](const Gradient& it) {
    return graph.tensor(it.gradient).kind == TensorKind::kActivation;
  });
}

// Checks that offload named by the strategy takes place.
void stays_on_device(PlanAttempt& it) {
  it.node.spec.offload.activations = Tier::kDevice;
  it.candidate.strategy = it.plan.strategy = to_text(it.node.spec);
}

// Shares of a step that copies of offloaded values may take: a quarter, a half, and about
// the maximum next to forward, which is a third of the step and has half of the copies.
constexpr double kCopyShares[] = {0.25, 0.5, 0.65};

}  // namespace

bool is_better(const PlanAttempt& a, const PlanAttempt& b) {
  const auto rank = [](const PlanAttempt& it) { return it.fits() ? 0 : it.lowered ? 1 : 2; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 1) return a.candidate.arena_bytes < b.candidate.arena_bytes;
  if (a.candidate.step_time_s != b.candidate.step_time_s)
    return a.candidate.step_time_s < b.candidate.step_time_s;
  return a.collectives < b.collectives;
}

PlanAttempt PlanAttempts::make(const SpaceNode& node, int64_t limit, double beat_s) const {
  if (node.spec.recompute != RecomputeForm::kSome) {
    PlanAttempt it = make_kept(node);
    it.limit = limit;
    return it;
  }
  PlanAttempt it = planned(node);
  if (!it.failure.ok()) return it;
  it.limit = limit;
  return node.spec.offload.activations == Tier::kDevice ? with_set(std::move(it), beat_s)
                                                        : with_moves(std::move(it), beat_s);
}

PlanAttempt PlanAttempts::size_of_batch(const SpaceNode& node, int64_t global_batch) const {
  if (global_batch != options_.global_batch) {
    PlanOptions options = options_;
    options.global_batch = global_batch, options.known = nullptr;
    return PlanAttempts(graph_, bound_graph_, cluster_, catalog_, options, limit_).size_of_batch(node, global_batch);
  }
  if (node.spec.recompute == RecomputeForm::kSome) return make(node);  // chosen by time
  if (options_.known != nullptr && options_.known->find(to_text(node.spec)) != nullptr) return make(node);
  PlanAttempt it = planned(node);
  if (!it.failure.ok()) return it;
  const Result<Program> program = lower_representatives(entry_of(it), catalog_);
  if (!program.ok()) return refuse(std::move(it), program.status());
  take_memory(it, *program);
  it.lowered = true;
  it.lowerings = 1;
  return it;
}

Result<Plan> PlanAttempts::plan_of(const SpaceNode& node) const {
  PlanAttempt it = planned(node);
  if (!it.failure.ok()) return it.failure;
  return std::move(it.plan);
}

PlanAttempt PlanAttempts::make_kept(const SpaceNode& node) const {
  const std::string words = to_text(node.spec);
  if (const PlanAttempt* known = options_.known == nullptr ? nullptr : options_.known->find(words)) {
    PlanAttempt it = *known;
    it.node = node;
    if (it.lowered) judge(it);
    return it;
  }
  PlanAttempt it = planned(node);
  if (it.failure.ok())
    if (const Status status = lower_ranks_as_representatives(it).status(); !status.ok())
      it = refuse(std::move(it), status);
  if (options_.known != nullptr) options_.known->keep(words, it);
  return it;
}

void PlanAttempts::judge(PlanAttempt& it) const {
  it.candidate.rejected.clear();
  if (it.candidate.arena_bytes > limit_)
    it.candidate.rejected = format("needs {} on device {}, the limit is {}",
                                   bytes_text(it.candidate.arena_bytes), it.fullest, bytes_text(limit_));
}

Status PlanAttempts::lower_whole(PlanAttempt& it) const {
  const EntrySpec entry = entry_of(it);
  TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), catalog_));
  TSR_RETURN_IF_ERROR(take(it, program));
  it.exact = true;
  return {};
}

PlanAttempt PlanAttempts::planned(const SpaceNode& node) const {
  const StrategySpec& spec = node.spec;
  PlanAttempt it;
  it.node = node;
  it.candidate.strategy = to_text(spec);
  PropagationOptions options;
  options.spec = spec;
  options.global_batch = options_.global_batch;
  options.may_replicate_batch = !makes_gradients(graph_);
  if (options_.like != nullptr) {
    options.stored = stored_like();
    options.owners = owners_of(*options_.like_graph, *options_.like);
    for (const PlannedGraph& it : followed()) add_holders(*it.graph, *it.plan, options.holders);
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

EntrySpec PlanAttempts::entry_of(const PlanAttempt& it) const {
  return {std::string(kEntry), &graph_, &it.plan};
}

Result<Program> PlanAttempts::lower_ranks_as_representatives(PlanAttempt& it) const {
  TSR_ASSIGN_OR_RETURN(Program program, lower_representatives(entry_of(it), catalog_));
  TSR_RETURN_IF_ERROR(take(it, program));
  it.lowered = true;
  ++it.lowerings;
  return program;
}

// The cheapest set of recomputed activations that fits, found on
// the program that keeps all; the smallest set seen if none does.
PlanAttempt PlanAttempts::with_set(PlanAttempt base, double beat_s) const {
  const Result<Program> program = lower_ranks_as_representatives(base);
  if (!program.ok()) return refuse(std::move(base), program.status());
  if (base.candidate.arena_bytes <= base.limit) {
    if (!base.plan.offload.empty()) return base;  // partly offloaded, which no strategy text expresses
    base.node.spec.recompute = RecomputeForm::kNone;
    stays_on_device(base);
    return base;
  }
  const auto may_repeat = [&](TensorId id) { return may_recompute(graph_, options_.pins, id); };
  const auto choices = RecomputeOptions::of(entry_of(base), *program, cluster_, may_repeat);
  if (!choices.ok()) return refuse(std::move(base), choices.status());
  std::vector<TensorId> all = block_activations(bound_graph_);
  std::erase_if(all, [&](TensorId id) { return !may_repeat(id); });
  std::map<std::vector<TensorId>, PlanAttempt> tried;
  const auto with_effort = [&](PlanAttempt it) {
    it.lowerings = 1 + static_cast<int32_t>(tried.size());
    return it;
  };
  const auto measure = [&](const std::vector<TensorId>& set) -> Result<MeasuredSet> {
    auto at = tried.find(set);
    if (at == tried.end()) {
      PlanAttempt it = base;
      it.plan.recompute = set;
      std::erase_if(it.plan.offload, [&](const OffloadedTensor& moved) {
        return std::ranges::binary_search(set, moved.tensor);
      });
      TSR_RETURN_IF_ERROR(lower_ranks_as_representatives(it).status());
      at = tried.emplace(set, std::move(it)).first;
    }
    return MeasuredSet{at->second.candidate.step_time_s, at->second.limited_bytes};
  };
  const auto found = search_recompute_set(*choices, base.limited_bytes, base.limit, all, measure,
                                          {.beat_s = beat_s});
  if (!found.ok()) return refuse(std::move(base), found.status());
  if (*found) return with_effort(std::move(tried.at(**found)));
  PlanAttempt least = std::move(base);
  for (auto& [set, it] : tried)
    if (it.candidate.arena_bytes < least.candidate.arena_bytes) least = std::move(it);
  return with_effort(std::move(least));
}

// Offloads as many activations as copies have time for, or a share;
// of the others some are recomputed. The last resort offloads all.
PlanAttempt PlanAttempts::with_moves(PlanAttempt base, double beat_s) const {
  const std::vector<OffloadedTensor> movable = std::exchange(base.plan.offload, {});
  const Result<Program> program = lower_ranks_as_representatives(base);
  if (!program.ok()) return refuse(std::move(base), program.status());
  base.lowerings = 0;  // counted below
  if (base.candidate.arena_bytes <= base.limit) return with_set(std::move(base), beat_s);
  const auto may_repeat = [&](TensorId id) { return may_recompute(graph_, options_.pins, id); };
  const auto choices = RecomputeOptions::of(entry_of(base), *program, cluster_, may_repeat);
  if (!choices.ok()) return refuse(std::move(base), choices.status());
  const int64_t excess = base.candidate.arena_bytes - base.limit;
  const auto nodes = static_cast<int64_t>(program->ranks[0].entries[0].code.size());
  const double step_s = base.candidate.step_time_s;
  std::optional<PlanAttempt> best;
  int32_t lowerings = 1;
  std::vector<OffloadedTensor> last;
  const auto consider = [&](PlanAttempt it) {
    last = it.plan.offload;
    it = with_set(std::move(it),
                  best && best->fits() ? std::min(beat_s, best->candidate.step_time_s) : beat_s);
    lowerings += it.lowerings;
    if (!best || is_better(it, *best)) best = std::move(it);
  };
  if (std::isinf(beat_s)) consider(base);  // a caller with a step to beat knows this plan
  for (const double share : kCopyShares) {
    PlanAttempt it = base;
    it.plan.offload = choose_activation_offload(*choices, movable, cluster_, share * step_s, excess);
    if (it.plan.offload == last) continue;
    it.plan.prefetch =
        std::max(it.plan.prefetch, prefetch_distance(*choices, it.plan.offload, cluster_, step_s, nodes));
    consider(std::move(it));
  }
  if (!best || !best->fits()) {
    PlanAttempt it = base;
    it.plan.offload = movable;
    consider(std::move(it));
  }
  if (best->plan.offload.empty()) stays_on_device(*best);
  best->lowerings = lowerings;
  return std::move(*best);
}

// Takes time and size from its program.
Status PlanAttempts::take(PlanAttempt& it, const Program& program) const {
  TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, kEntry, cluster_));
  it.candidate.step_time_s = simulation.seconds();
  const Price first = price(program.ranks[0], kEntry, cluster_, static_cast<int32_t>(program.ranks.size()));
  it.collectives = first.collectives;
  PlanEstimate& estimate = it.plan.estimate;
  estimate.step_time_s = simulation.seconds();
  estimate.compute_s = first.compute_s;
  estimate.communication_s = first.communication_s;
  take_memory(it, program);
  return {};
}

void PlanAttempts::take_memory(PlanAttempt& it, const Program& program) const {
  PlanEstimate& estimate = it.plan.estimate;
  estimate.arena_bytes.assign(cluster_.devices.size(), 0);  // idle devices hold nothing
  it.limited_bytes = estimate.arena_bytes;
  it.candidate.arena_bytes = 0;
  it.fullest = 0;
  it.instructions = 0;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const RankProgram& part = program.ranks[rank];
    const int64_t limited = limited_bytes(part, cluster_);
    for (const EntryPoint& entry : part.entries) it.instructions += static_cast<int64_t>(entry.code.size());
    if (rank < estimate.arena_bytes.size()) {
      estimate.arena_bytes[rank] = part.arena_bytes;
      it.limited_bytes[rank] = limited;
    }
    if (limited <= it.candidate.arena_bytes && rank > 0) continue;
    it.candidate.arena_bytes = limited;
    it.peak = part.peak;
    it.fullest = static_cast<int32_t>(rank);
  }
  judge(it);
}

std::vector<PlannedGraph> PlanAttempts::followed() const {
  std::vector<PlannedGraph> all = {{options_.like_graph, options_.like}};
  all.insert(all.end(), options_.also_like.begin(), options_.also_like.end());
  return all;
}

std::map<std::string, ShardingSpec> PlanAttempts::stored_like() const {
  std::map<std::string, ShardingSpec> stored;
  for (const PlannedGraph& it : followed())
    for (const StoredTensor& tensor : it.plan->stored) {
      const Tensor& known = it.graph->tensor(tensor.tensor);
      if (known.kind != TensorKind::kInput && known.kind != TensorKind::kActivation)
        stored.emplace(known.name, tensor.placements[0].stored);
    }
  return stored;
}

}  // namespace tessera
