// Every combination of (dp, tp, sp, zero, micro-batch) that uses all devices is lowered for its largest rank,
// priced and sized from that very program; the fastest that fits is the plan. No closed form stands in for
// the program.
#include "parallel/planner.h"

#include <algorithm>
#include <map>

#include "graph/base/text.h"
#include "parallel/cost_model.h"
#include "parallel/lower.h"
#include "parallel/propagation.h"
#include "parallel/stage_cut.h"
#include "parallel/strategy.h"

namespace tessera {

namespace {

constexpr std::string_view kEntry = "step";

struct Attempt {
  StrategySpec spec;
  bool as_worded = false;  // nothing chosen beyond the words given
  Candidate candidate;
  Plan plan;
  Price price;
  std::string peak;
  bool lowered = false;
  Status failure;
};

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

// Divisors of the sequences that one data-parallel rank gets, largest first: whole first, then halves, ...
std::vector<int64_t> micro_batch_sizes(int64_t global_batch, int32_t dp) {
  if (global_batch % dp != 0) return {0};  // uneven: one micro-batch
  const int64_t each = global_batch / dp;
  std::vector<int64_t> sizes = {0};
  for (int64_t size = each / 2; size >= 1; size /= 2)
    if (each % size == 0) sizes.push_back(size);
  return sizes;
}

// What "auto" may stand for, cheapest in time first; memory decides.
std::vector<StrategySpec> settle_auto(const StrategySpec& given) {
  std::vector<StrategySpec> all = {given};
  if (given.recompute == RecomputeForm::kAuto) {
    all = {given, given};
    all[0].recompute = RecomputeForm::kNone;
    all[1].recompute = RecomputeForm::kFull;
  }
  if (!given.offload.automatic) return all;
  constexpr Tier kHost = Tier::kHost, kDevice = Tier::kDevice;
  const OffloadWords choices[] = {{},
                                  {false, kDevice, kDevice, kHost, kDevice},
                                  {false, kDevice, kDevice, kHost, kHost},
                                  {false, kHost, kHost, kHost, kDevice},
                                  {false, kHost, kHost, kHost, kHost}};
  std::vector<StrategySpec> each;
  for (const OffloadWords& words : choices)
    for (StrategySpec spec : all) {
      spec.offload = words;
      each.push_back(spec);
    }
  return each;
}

std::vector<StrategySpec> enumerate(const StrategySpec& given, const StrategyPins& pins, int32_t devices,
                                    int64_t global_batch, bool training) {
  std::vector<StrategySpec> all;
  const int32_t others = given.cp * given.ep * given.pp;
  if (devices % others != 0) return all;
  for (int32_t tp = 1; tp <= devices / others; ++tp) {
    if (devices / others % tp != 0) continue;
    const int32_t dp = devices / others / tp;
    if ((pins.tp && given.tp != tp) || (pins.dp && given.dp != dp)) continue;
    for (const bool sp : {false, true}) {
      if ((sp && (tp == 1 || given.form != TensorForm::k1d)) || (pins.sp && !sp)) continue;
      for (int32_t zero = 0; zero <= 3; ++zero) {
        const bool spreads = dp * given.ep * given.cp > 1 && training;
        if (pins.zero ? zero != given.zero : (zero > 0 && !spreads)) continue;
        std::vector<int64_t> sizes =
            training ? micro_batch_sizes(global_batch, dp * given.ep) : std::vector<int64_t>{0};
        if (pins.micro_batch) sizes = {given.micro_batch};
        for (const int64_t size : sizes) {
          StrategySpec& spec = all.emplace_back(given);
          spec.dp = dp;
          spec.tp = tp;
          spec.sp = sp;
          spec.zero = zero;
          spec.micro_batch = size;
        }
      }
    }
  }
  return all;
}

// The strategy that a plan names; of a plan edited by hand, one with its mesh.
StrategySpec spec_like(const Plan& plan) {
  const auto pins = parse_parallel(plan.strategy);
  const DeviceMesh mesh = plan.stages.empty() ? DeviceMesh{} : plan.stages[0].mesh;
  if (pins.ok() && pins->spec.devices() == mesh.size() * pins->spec.pp) return pins->spec;
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

bool differ_in_micro_batch(StrategySpec a, const StrategySpec& b) {
  a.micro_batch = b.micro_batch;
  return a == b;
}

class Search {
 public:
  Search(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog, const PlanOptions& options)
      : graph_(graph),
        cluster_(cluster),
        catalog_(catalog),
        options_(options),
        limit_(memory_limit(cluster, options)) {}

  Result<PlanResult> run() {
    TSR_ASSIGN_OR_RETURN(const std::vector<StrategySpec> specs, candidates());
    TSR_ASSIGN_OR_RETURN(const Graph bound, graph_.bind_partly(options_.symbols));
    std::vector<Attempt> attempts;
    for (const StrategySpec& spec : specs) {
      // Cutting further than what fits only repeats launches and collectives.
      if (!attempts.empty() && attempts.back().candidate.rejected.empty() &&
          differ_in_micro_batch(attempts.back().spec, spec))
        continue;
      attempts.push_back(attempt(bound, spec));
    }
    if (!options_.parallel.empty()) mark_as_worded(attempts);
    for (;;) {
      std::ranges::stable_sort(attempts, better);
      if (attempts.empty() || !attempts[0].candidate.rejected.empty()) return nothing_fits(attempts);
      TSR_RETURN_IF_ERROR(size_all_ranks(attempts[0]));
      if (attempts[0].candidate.rejected.empty()) break;
    }
    PlanResult result;
    for (Attempt& it : attempts) result.candidates.push_back(std::move(it.candidate));
    result.plan = std::move(attempts[0].plan);
    return result;
  }

 private:
  Result<std::vector<StrategySpec>> candidates() const {
    const auto devices = static_cast<int32_t>(cluster_.devices.size());
    if (devices == 0) return Status(StatusCode::kInvalidArgument, "the cluster has no devices to plan for");
    if (options_.like != nullptr) {
      StrategySpec spec = spec_like(*options_.like);
      // The same cut into micro-batches where this batch admits it.
      const int64_t at_once = spec.micro_batch * spec.data();
      if (at_once > 0 && options_.global_batch % at_once != 0) spec.micro_batch = 0;
      return std::vector<StrategySpec>{spec};
    }
    TSR_ASSIGN_OR_RETURN(StrategyPins pins, parse_parallel(options_.parallel));
    if (pins.dp && pins.tp && pins.spec.devices() != devices)
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' uses {} devices, {} are given; ask for {} devices or change dp or tp",
                           options_.parallel, pins.spec.devices(), devices, pins.spec.devices()));
    // A pinned dp or tp alone means the rest is 1 when that uses every device.
    std::vector<StrategySpec> all;
    for (const StrategySpec& given : settle_auto(pins.spec)) {
      const auto some = enumerate(given, pins, devices, options_.global_batch, trains(graph_));
      all.insert(all.end(), some.begin(), some.end());
    }
    if (all.empty())
      return Status(StatusCode::kInvalidArgument,
                    format("no strategy with '{}' uses {} devices exactly: dp times tp must be {}",
                           options_.parallel, devices, devices));
    return all;
  }

  Attempt attempt(const Graph& bound, const StrategySpec& spec) const {
    Attempt it;
    it.spec = spec;
    it.candidate.strategy = to_text(spec);
    PropagationOptions options;
    options.spec = spec;
    options.global_batch = options_.global_batch;
    options.may_replicate_batch = !trains(graph_);
    if (options_.like != nullptr) {
      options.stored = stored_like();
      options.owners = owners_of(*options_.like_graph, *options_.like);
    }
    auto plan = propagate(bound, options);
    if (!plan.ok()) return refuse(std::move(it), plan.status());
    it.plan = std::move(*plan);
    it.plan.graph_fingerprint = graph_.fingerprint();
    it.plan.symbols = options_.symbols;
    // Larger parts come first, so that rank 0 holds the largest of everything.
    const EntrySpec entry{std::string(kEntry), &graph_, &it.plan};
    auto program = lower_rank(std::span(&entry, 1), catalog_, 0);
    if (!program.ok()) return refuse(std::move(it), program.status());
    it.lowered = true;
    it.price = price(*program, kEntry, cluster_, spec.devices());
    it.candidate.step_time_s = it.price.total_s();
    it.candidate.arena_bytes = program->arena_bytes;
    it.peak = program->peak;
    PlanEstimate& estimate = it.plan.estimate;
    estimate.step_time_s = it.price.total_s();
    estimate.compute_s = it.price.compute_s;
    estimate.communication_s = it.price.communication_s;
    check_size(it, 0);
    return it;
  }

  // Whoever gives words means what they name: options that they leave open stay off unless that does not fit.
  void mark_as_worded(std::vector<Attempt>& attempts) const {
    const auto pins = parse_parallel(options_.parallel);
    for (Attempt& it : attempts) {
      StrategySpec plain = pins->spec;
      plain.dp = it.spec.dp;
      plain.tp = it.spec.tp;
      if (plain.recompute == RecomputeForm::kAuto) plain.recompute = it.spec.recompute;
      if (plain.offload.automatic) plain.offload = it.spec.offload;
      it.as_worded = it.spec == plain;
    }
  }

  static Attempt refuse(Attempt it, const Status& status) {
    it.failure = status;
    it.candidate.rejected = std::string(status.message());
    return it;
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
    const auto rank = [](const Attempt& it) {
      return it.candidate.rejected.empty() ? 0 : it.lowered ? 1 : 2;
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (rank(a) == 0 && a.as_worded != b.as_worded) return a.as_worded;
    if (rank(a) == 1) return a.candidate.arena_bytes < b.candidate.arena_bytes;
    if (a.candidate.step_time_s != b.candidate.step_time_s)
      return a.candidate.step_time_s < b.candidate.step_time_s;
    return a.price.collectives < b.price.collectives;
  }

  Status nothing_fits(std::vector<Attempt>& attempts) const {
    if (attempts.empty()) return Status(StatusCode::kInvalidArgument, "there is no strategy to try");
    Attempt& least = attempts[0];
    if (!least.lowered) return least.failure.with_context(format("strategy '{}'", least.candidate.strategy));
    TSR_RETURN_IF_ERROR(size_all_ranks(least));
    return Status(StatusCode::kOutOfMemory,
                  format("no plan fits {} a device; the smallest limit that works is {} ({} bytes) with "
                         "'{}'. Its peak: {}",
                         bytes_text(limit_), bytes_text(least.candidate.arena_bytes),
                         least.candidate.arena_bytes, least.candidate.strategy, least.peak));
  }

  void check_size(Attempt& it, int32_t rank) const {
    if (it.candidate.arena_bytes > limit_ && it.candidate.rejected.empty())
      it.candidate.rejected = format("needs {} on device {}, the limit is {}",
                                     bytes_text(it.candidate.arena_bytes), rank, bytes_text(limit_));
  }

  // Rank 0 holds the largest shards, but another may need a few buffers that it does not (zeros beside an
  // addend).
  Status size_all_ranks(Attempt& it) const {
    const EntrySpec entry{std::string(kEntry), &graph_, &it.plan};
    it.plan.estimate.arena_bytes.clear();
    for (int32_t rank = 0; rank < it.spec.devices(); ++rank) {
      TSR_ASSIGN_OR_RETURN(const RankProgram program, lower_rank(std::span(&entry, 1), catalog_, rank));
      it.plan.estimate.arena_bytes.push_back(program.arena_bytes);
      if (program.arena_bytes > it.candidate.arena_bytes) {
        it.candidate.arena_bytes = program.arena_bytes;
        it.peak = program.peak;
      }
      check_size(it, rank);
    }
    return {};
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  int64_t limit_;
};

}  // namespace

Result<PlanResult> make_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options) {
  if (options.like != nullptr && options.like_graph == nullptr)
    return Status(StatusCode::kInvalidArgument, "PlanOptions.like wants like_graph beside it");
  return Search(graph, cluster, catalog, options).run();
}

}  // namespace tessera
