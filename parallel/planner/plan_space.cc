#include "parallel/planner/plan_space.h"

#include <algorithm>
#include <bit>
#include <set>
#include <span>
#include <string_view>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/planner/planner.h"
#include "parallel/search/divisors.h"
#include "parallel/sharding/batch_cut.h"

namespace tessera {

namespace {

struct StageSchedule {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int32_t virtual_stages = 1;
};

constexpr StageSchedule kLoweredSchedules[] = {{ScheduleKind::k1F1B, 1}, {ScheduleKind::kGpipe, 1},
                                               {ScheduleKind::kInterleaved, 2}, {ScheduleKind::kZbH1, 1},
                                               {ScheduleKind::kZbH2, 1}, {ScheduleKind::kZbV, 2}};
// Without GPipe, which takes more memory than 1F1B and is no faster.
constexpr StageSchedule kComposedSchedules[] = {{ScheduleKind::k1F1B, 1},        {ScheduleKind::kInterleaved, 2},
                                                {ScheduleKind::kInterleaved, 3}, {ScheduleKind::kInterleaved, 4},
                                                {ScheduleKind::kInterleaved, 6}, {ScheduleKind::kInterleaved, 8},
                                                {ScheduleKind::kInterleaved, 12}, {ScheduleKind::kZbH1, 1},
                                                {ScheduleKind::kZbH2, 1},        {ScheduleKind::kZbV, 2}};

// SpaceLimits: what a use leaves out of all strategies, unless it is pinned.
struct SpaceLimits {
  int32_t most_tp = INT32_MAX;
  int64_t least_tokens = INT64_MAX;              // of a rank's part of a sequence
  int32_t most_aspect = 0;                       // longest side of a 2d grid over the other; 0: no grids
  bool is_zero_optional = false;                 // zero=0 is tried where the data axes could spread state
  bool has_keep = false;                         // kept gathers are tried
  std::span<const StageSchedule> schedules = {};  // none: no pipelines
};

// Training that is lowered: whatever lowers, since a whole program prices it exactly. Parts of 16 tokens are still worth a
// kernel; programs of more than two virtual stages take too long to lower.
constexpr SpaceLimits kLoweredTraining = {INT32_MAX, 16, INT32_MAX, true, true, kLoweredSchedules};
// Training that is composed: thousands of devices, so what never paid is left out. Beyond 64 parts tensor parallelism leaves
// its node; shorter parts of sequences than 4,096 tokens do not hide their exchange; long grids lose to 1d; ZeRO 1 is
// never slower than none, and saves memory.
constexpr SpaceLimits kComposedTraining = {64, 4096, 2, false, false, kComposedSchedules};
// Serving, and graphs without gradients, lowered: tp and replicas of the batch. A pipeline's stages would wait for each
// other in every token; context, ZeRO and grids split what only training has.
constexpr SpaceLimits kServing = {};
// Composed generation (generation_search.h) has pipelines as well, since its groups of sequences take turns in them.

constexpr int64_t kMostSequences = 64;  // of an unpinned micro-batch of composed plans

const SpaceLimits& lowered_limits(const SpaceOfGraph& space) { return space.trains ? kLoweredTraining : kServing; }

// Grids of tp devices, with the spec's other options.
std::vector<StrategySpec> grids_of(StrategySpec spec, int32_t most_aspect) {
  std::vector<StrategySpec> all;
  const auto add = [&](TensorForm form, std::array<int32_t, 3> grid) {
    spec.form = form, spec.grid = grid;
    all.push_back(spec);
  };
  const bool any = most_aspect == INT32_MAX;
  if (spec.tp < 4 || most_aspect == 0) return all;
  for (const int32_t x : divisors(spec.tp)) {
    const int32_t y = spec.tp / x, z = y / x;
    if (x == 1 || y == 1) continue;
    if (any || (x <= y && y <= most_aspect * x)) add(TensorForm::k2d, {x, y, 1});
    if (y % x != 0 || z == 1) continue;
    if (any || z != x) add(TensorForm::k25d, {x, x, z});
    if (z == x) add(TensorForm::k3d, {x, x, x});
  }
  return all;
}

bool may_split_context(const SpaceLimits& limits, const SpaceOfGraph& space, int32_t cp) {
  return cp == 1 || (space.trains && space.tokens / cp >= limits.least_tokens);
}

bool may_split_experts(const SpaceOfGraph& space, int32_t ep) {
  return ep == 1 || (space.experts > 0 && space.experts % ep == 0);
}

std::span<const ContextForm> context_forms(int32_t cp) {
  static constexpr ContextForm kNone[] = {ContextForm::kNone};
  static constexpr ContextForm kForms[] = {ContextForm::kRing, ContextForm::kUlysses, ContextForm::kGather};
  return cp == 1 ? std::span<const ContextForm>(kNone) : kForms;
}

// The spec's pipeline with every schedule that its blocks admit.
void add_schedules(StrategySpec spec, const SpaceOfGraph& space, std::span<const StageSchedule> schedules,
                   int64_t micro_batches, std::vector<StrategySpec>& all) {
  for (const auto& [kind, virtual_stages] : schedules) {
    // With one micro-batch all schedules are equal.
    if (micro_batches == 1 && kind != schedules[0].kind) continue;
    if (space.blocks > 0 && int64_t{spec.pp} * virtual_stages > space.blocks) continue;
    spec.schedule = kind, spec.virtual_stages = virtual_stages;
    all.push_back(spec);
  }
}

// Values of "auto", cheapest in time first; memory decides.
std::vector<StrategySpec> settle_auto(const StrategySpec& given, Tier away) {
  std::vector<StrategySpec> all = {given};
  if (given.recompute == RecomputeForm::kAuto) {
    all = {given, given, given};
    all[0].recompute = RecomputeForm::kNone;
    all[1].recompute = RecomputeForm::kSome;
    all[2].recompute = RecomputeForm::kFull;
  }
  if (!given.offload.automatic) return all;
  constexpr Tier kDevice = Tier::kDevice;
  const OffloadWords choices[] = {{},
                                  {false, kDevice, kDevice, away, kDevice},
                                  {false, kDevice, kDevice, away, away},
                                  {false, away, away, away, kDevice},
                                  {false, away, away, away, away}};
  std::vector<StrategySpec> each;
  for (const OffloadWords& words : choices)
    for (StrategySpec spec : all) {
      spec.offload = words;
      each.push_back(spec);
    }
  return each;
}

std::vector<StrategySpec> worded_roots(const SpaceOfGraph& space, const StrategyPins& pins, int32_t devices) {
  std::vector<StrategySpec> roots;
  const int32_t others = pins.spec.cp * pins.spec.ep * pins.spec.pp;
  if (devices % others != 0) return roots;
  for (const StrategySpec& given : settle_auto(pins.spec, space.away))
    for (const int32_t tp : divisors(devices / others)) {
      const int32_t dp = devices / others / tp;
      if ((pins.tp && given.tp != tp) || (pins.dp && given.dp != dp)) continue;
      for (const bool sp : {false, true}) {
        if ((sp && (tp == 1 || given.form != TensorForm::k1d)) || (pins.sp && !sp)) continue;
        for (int32_t zero = 0; zero <= 3; ++zero) {
          const bool spreads = dp * given.ep * given.cp > 1 && space.trains;
          if (pins.zero ? zero != given.zero : (zero > 0 && !spreads)) continue;
          StrategySpec& spec = roots.emplace_back(given);
          spec.dp = dp, spec.tp = tp, spec.sp = sp, spec.zero = zero;
        }
      }
    }
  return roots;
}

// Adds the spec's pipelines, in micro-batches of every size.
void add_pipelines(StrategySpec spec, const SpaceOfGraph& space, std::vector<StrategySpec>& roots) {
  if (spec.pp == 1) return roots.push_back(spec);
  if (space.batch % spec.data() != 0) return;
  const int64_t each = space.batch / spec.data();
  const int64_t most = space.may_cut ? std::min<int64_t>(each, 4 * spec.pp) : 1;
  for (int64_t count = 1; count <= most; ++count) {
    if (each % count != 0) continue;
    spec.micro_batch = each / count;
    add_schedules(spec, space, lowered_limits(space).schedules, count, roots);
  }
}

void add_zero(StrategySpec spec, const SpaceOfGraph& space, std::vector<StrategySpec>& roots) {
  const bool spreads = space.trains && spec.data() * spec.cp > 1;
  const bool needs_zero = spreads && !lowered_limits(space).is_zero_optional;
  for (spec.zero = needs_zero ? 1 : 0; spec.zero <= (spreads ? 3 : 0); ++spec.zero)
    for (const bool keep : {false, true}) {
      spec.keep = keep;
      const bool gathers = spec.zero == 3 || spec.sp || spec.form != TensorForm::k1d;
      if (!keep || (lowered_limits(space).has_keep && gathers)) add_pipelines(spec, space, roots);
    }
}

// All strategies of one number of devices, without pins.
void add_open_roots(const SpaceOfGraph& space, int32_t devices, std::vector<StrategySpec>& roots) {
  const SpaceLimits& limits = lowered_limits(space);
  for (const int32_t pp : divisors(devices)) {
    if (pp > 1 && (limits.schedules.empty() || (space.blocks > 0 && pp > space.blocks))) continue;
    for (const int32_t cp : divisors(devices / pp)) {
      if (!may_split_context(limits, space, cp)) continue;
      for (const int32_t ep : divisors(devices / pp / cp)) {
        if (!may_split_experts(space, ep)) continue;
        for (const int32_t tp : divisors(devices / pp / cp / ep)) {
          StrategySpec spec;
          spec.pp = pp, spec.cp = cp, spec.ep = ep, spec.tp = tp;
          spec.dp = devices / pp / cp / ep / tp;
          if (space.trains && spec.data() > space.batch) continue;
          for (const ContextForm form : context_forms(cp))
            for (const bool sp : {false, true}) {
              spec.context = form, spec.sp = sp;
              if (!sp || tp > 1) add_zero(spec, space, roots);
            }
          spec.sp = false;
          if (pp * cp * ep == 1)
            for (const StrategySpec& grid : grids_of(spec, limits.most_aspect)) add_zero(grid, space, roots);
        }
      }
    }
  }
}

// The strategy named by a plan; for an edited plan, one with its mesh.
StrategySpec spec_like(const Plan& plan, bool trains) {
  const auto pins = parse_parallel(plan.strategy);
  const DeviceMesh mesh = plan.stages.empty() ? DeviceMesh{} : plan.stages[0].mesh;
  if (pins.ok() && pins->spec.devices() == mesh.size() * pins->spec.pp) {
    StrategySpec spec = pins->spec;
    // Mesh and placements are kept, but not the recompute set: all is recomputed if needed.
    if (spec.recompute == RecomputeForm::kSome)
      spec.recompute = trains ? RecomputeForm::kFull : RecomputeForm::kNone;
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

// The next smaller micro-batch of one data-parallel rank; 0: none.
int64_t smaller_micro_batch(const StrategySpec& spec, int64_t batch) {
  if (batch % spec.data() != 0) return 0;
  const int64_t each = batch / spec.data();
  int64_t size = spec.micro_batch == 0 ? each : spec.micro_batch;
  for (size /= 2; size >= 1; size /= 2)
    if (each % size == 0) return size;
  return 0;
}

int32_t smallest_prime(int32_t n) {
  for (int32_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// The split with fewer parts of its last kind.
StrategySpec parent_of(StrategySpec spec) {
  if (spec.ep > 1) {
    spec.ep /= smallest_prime(spec.ep);
  } else if (spec.cp > 1) {
    spec.cp /= smallest_prime(spec.cp);
    if (spec.cp == 1) spec.context = ContextForm::kNone;
  } else if (spec.form != TensorForm::k1d) {
    spec.form = TensorForm::k1d, spec.grid = {1, 1, 1}, spec.tp = 1;
  } else {
    spec.tp /= smallest_prime(spec.tp);
  }
  spec.sp = spec.sp && spec.tp > 1;
  return spec;
}

}  // namespace

SpaceOfGraph space_of(const Graph& graph, int64_t batch, int64_t tokens, Tier away) {
  SpaceOfGraph space;
  space.away = away;
  space.trains = !graph.gradients().empty();
  space.may_cut = space.trains && cut_batch(graph).ok();
  space.batch = batch;
  space.tokens = tokens;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const Shape& shape = graph.type(id).shape;
    // A three-dimensional weight is a stack of weights.
    if (shape.rank() == 3) space.experts = std::max(space.experts, shape[0]);
  }
  std::set<std::string_view> blocks;
  for (const Node& node : graph.nodes())
    if (node.phase == Phase::kForward)
      if (const std::string_view block = block_scope(node.scope); !block.empty()) blocks.insert(block);
  space.blocks = static_cast<int64_t>(blocks.size());
  return space;
}

std::vector<StrategySpec> plan_roots(const SpaceOfGraph& space, const StrategyPins& pins, bool has_words,
                                     int32_t devices) {
  if (has_words) return worded_roots(space, pins, devices);
  std::vector<StrategySpec> roots;
  // Beyond a few devices, only whole fractions may be idle.
  constexpr int32_t kFew = 8;
  for (int32_t used = devices; used >= 1; --used)
    if (devices <= kFew || devices % used == 0) add_open_roots(space, used, roots);
  return roots;
}

bool SearchRoots::is_as_worded(const StrategySpec& spec) const {
  if (!has_words) return true;
  StrategySpec plain = pins.spec;
  plain.dp = spec.dp;
  plain.tp = spec.tp;
  if (plain.recompute == RecomputeForm::kAuto) plain.recompute = spec.recompute;
  if (plain.offload.automatic) plain.offload = spec.offload;
  return spec == plain;
}

Result<SearchRoots> search_roots(const SpaceOfGraph& space, const PlanOptions& options, int32_t devices) {
  if (devices == 0) return Status(StatusCode::kInvalidArgument, "the cluster has no devices to plan for");
  SearchRoots roots;
  if (options.like != nullptr) {
    StrategySpec spec = spec_like(*options.like, space.trains);
    // Keeps the cut into micro-batches if this batch admits it:
    // a whole batch may need more memory than the step's parts.
    const int32_t parts = options.like->micro_batches;
    if (spec.micro_batch == 0 && parts > 1)
      spec.micro_batch = options.global_batch / (spec.data() * int64_t{parts});
    const int64_t at_once = spec.micro_batch * spec.data();
    if (at_once > 0 && options.global_batch % at_once != 0) spec.micro_batch = 0;
    roots.specs = {spec};
    return roots;
  }
  TSR_ASSIGN_OR_RETURN(roots.pins, parse_parallel(options.parallel));
  roots.has_words = !options.parallel.empty();
  if (roots.pins.dp && roots.pins.tp && roots.pins.spec.devices() != devices)
    return Status(StatusCode::kInvalidArgument,
                  format("'{}' uses {} devices, {} are given; ask for {} devices or change dp or tp",
                         options.parallel, roots.pins.spec.devices(), devices, roots.pins.spec.devices()));
  roots.specs = plan_roots(space, roots.pins, roots.has_words, devices);
  if (roots.specs.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("no strategy with '{}' uses {} devices exactly: dp times tp must be {}",
                         options.parallel, devices, devices));
  return roots;
}

StrategySpec with_moves(StrategySpec spec, Tier away) {
  spec.offload.activations = away;
  return spec;
}

std::vector<SpaceNode> savings_of(const SpaceNode& node, const SpaceOfGraph& space, const StrategyPins& pins,
                                  bool has_words) {
  std::vector<SpaceNode> below;
  if (!space.trains) return below;
  const StrategySpec& spec = node.spec;
  const auto add = [&](SavingStep step) -> StrategySpec& {
    below.push_back({spec, step});
    return below.back().spec;
  };
  if (space.may_cut && node.last <= SavingStep::kMicroBatch && !pins.micro_batch && (has_words || spec.pp == 1))
    if (const int64_t size = smaller_micro_batch(spec, space.batch); size > 0)
      add(SavingStep::kMicroBatch).micro_batch = size;
  if (has_words) return below;
  if (node.last < SavingStep::kRecompute) add(SavingStep::kRecompute).recompute = RecomputeForm::kFull;
  const bool gathers = (spec.zero == 3 || spec.form != TensorForm::k1d) && !spec.keep;
  if (node.last <= SavingStep::kChunks && gathers && spec.chunks < 4) add(SavingStep::kChunks).chunks *= 2;
  if (node.last < SavingStep::kOffload) {
    constexpr Tier kDevice = Tier::kDevice;
    const Tier away = space.away;
    for (const OffloadWords& words : {OffloadWords{false, kDevice, kDevice, away, kDevice},
                                      OffloadWords{false, kDevice, kDevice, kDevice, away},
                                      OffloadWords{false, kDevice, away, away, kDevice},
                                      OffloadWords{false, away, away, away, kDevice},
                                      OffloadWords{false, away, away, away, away}})
      add(SavingStep::kOffload).offload = words;
  }
  return below;
}

std::vector<int64_t> ComposedSpace::micro_batches() const {
  if (pins_.micro_batch) return {pins_.spec.micro_batch};
  std::vector<int64_t> all;
  for (const int32_t size : divisors(graph_.batch))
    if (size <= kMostSequences) all.push_back(size);
  constexpr size_t kFew = 5;
  if (all.size() > kFew)
    std::erase_if(all, [](int64_t size) { return !std::has_single_bit(static_cast<uint64_t>(size)); });
  return all;
}

std::vector<StrategySpec> ComposedSpace::splits() const {
  std::vector<StrategySpec> all;
  StrategySpec base = pins_.spec;
  base.dp = base.tp = base.cp = base.ep = base.pp = 1;
  base.zero = 0, base.zero_group = 0, base.schedule = ScheduleKind::kNone, base.virtual_stages = 1;
  base.sp = false, base.recompute = RecomputeForm::kNone;
  if (!pins_.tp) base.form = TensorForm::k1d, base.grid = {1, 1, 1};
  const bool may_be_grid = !pins_.tp && !pins_.sp && !pins_.cp && !pins_.ep && !pins_.pp;
  for (const int32_t tp : divisors(devices_)) {
    if (pins_.tp ? tp != pins_.spec.tp : tp > kComposedTraining.most_tp) continue;
    StrategySpec spec = base;
    spec.tp = tp;
    spec.sp = tp > 1 && spec.form == TensorForm::k1d;
    for (const int32_t cp : divisors(pins_.sp && !spec.sp ? 0 : devices_ / tp)) {
      if (pins_.cp ? cp != pins_.spec.cp : !may_split_context(kComposedTraining, graph_, cp)) continue;
      for (const ContextForm form : context_forms(cp)) {
        if (pins_.cp && cp > 1 && form != pins_.spec.context) continue;
        for (const int32_t ep : divisors(devices_ / tp / cp)) {
          if (pins_.ep ? ep != pins_.spec.ep : !may_split_experts(graph_, ep)) continue;
          spec.cp = cp, spec.context = form, spec.ep = ep;
          all.push_back(spec);
        }
      }
    }
    spec = base, spec.tp = tp;
    if (may_be_grid) std::ranges::copy(grids_of(spec, kComposedTraining.most_aspect), std::back_inserter(all));
  }
  return all;
}

std::vector<PlanGroup> ComposedSpace::groups() const {
  std::vector<PlanGroup> all;
  const std::vector<StrategySpec> each = splits();
  const std::vector<int64_t> sizes = micro_batches();
  const auto count = static_cast<int32_t>(sizes.size());
  for (const StrategySpec& split : each) {
    const auto parent = std::ranges::find(each, parent_of(split));
    const auto above = static_cast<int32_t>(parent - each.begin());
    const bool has_parent = parent != each.end() && *parent != split;
    for (int32_t i = 0; i < count; ++i) {
      PlanGroup group{.spec = split, .parent = has_parent ? above * count + i : -1, .smaller = -1};
      group.spec.micro_batch = sizes[static_cast<size_t>(i)];
      if (i > 0) group.smaller = static_cast<int32_t>(all.size()) - 1;
      all.push_back(group);
    }
  }
  return all;
}

std::vector<StrategySpec> ComposedSpace::plans_of(const StrategySpec& group) const {
  std::vector<StrategySpec> plans;
  const StageSchedule pinned = {pins_.spec.schedule, pins_.spec.virtual_stages};
  const std::span<const StageSchedule> schedules = pins_.pp ? std::span(&pinned, 1) : kComposedTraining.schedules;
  const int64_t rest = devices_ / (int64_t{group.tp} * group.cp * group.ep);
  for (const int32_t pp : divisors(rest)) {
    StrategySpec spec = group;
    spec.pp = pp, spec.dp = static_cast<int32_t>(rest / pp);
    if ((pins_.pp && pp != pins_.spec.pp) || (pins_.dp && spec.dp != pins_.spec.dp)) continue;
    if (pp > 1 && !pins_.tp && group.form != TensorForm::k1d) continue;
    const int64_t at_once = spec.micro_batch * spec.data();
    if (graph_.batch % at_once != 0 || graph_.batch / at_once > kMostMicroBatches) continue;
    if (pins_.owt && (spec.dp == 1 || spec.ep > 1 || spec.form != TensorForm::k1d)) continue;
    spec.recompute = pins_.recompute ? pins_.spec.recompute : RecomputeForm::kAuto;
    const bool spreads = spec.data() * spec.cp > 1;
    for (int32_t zero = 0; zero <= 3; ++zero) {
      const bool is_spread = zero > 0 || kComposedTraining.is_zero_optional;
      if (pins_.zero ? zero != pins_.spec.zero || (zero > 0 && !spreads) : is_spread != spreads) continue;
      spec.zero = zero, spec.zero_group = pins_.zero ? pins_.spec.zero_group : 0;
      if (pp == 1)
        plans.push_back(spec);
      else
        add_schedules(spec, graph_, schedules, graph_.batch / at_once, plans);
    }
  }
  return plans;
}

}  // namespace tessera
