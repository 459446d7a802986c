#include "parallel/planner/plan_space.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "graph/analysis/block_scope.h"
#include "parallel/search/divisors.h"
#include "parallel/sharding/batch_cut.h"

namespace tessera {

namespace {

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
          spec.dp = dp;
          spec.tp = tp;
          spec.sp = sp;
          spec.zero = zero;
        }
      }
    }
  return roots;
}

// OpenRoots: all strategies for one device count, without pins.
class OpenRoots {
 public:
  OpenRoots(const SpaceOfGraph& space, int32_t devices, std::vector<StrategySpec>& roots)
      : space_(space), devices_(devices), roots_(roots) {}

  void add() {
    for (const int32_t pp : divisors(devices_)) {
      if (pp > 1 && (!space_.trains || (space_.blocks > 0 && pp > space_.blocks))) continue;
      for (const int32_t cp : divisors(devices_ / pp)) {
        // A rank's part of the sequence must be worth a kernel.
        if (cp > 1 && (!space_.trains || space_.tokens < 16 * cp)) continue;
        for (const int32_t ep : divisors(devices_ / pp / cp)) {
          if (ep > 1 && (space_.experts % ep != 0 || space_.experts == 0)) continue;
          for (const int32_t tp : divisors(devices_ / pp / cp / ep)) {
            StrategySpec spec;
            spec.pp = pp, spec.cp = cp, spec.ep = ep, spec.tp = tp;
            spec.dp = devices_ / pp / cp / ep / tp;
            if (space_.trains && spec.data() > space_.batch) continue;
            add_forms(spec);
          }
        }
      }
    }
  }

 private:
  void add_forms(StrategySpec spec) {
    add_contexts(spec);
    if (spec.tp < 4 || spec.pp > 1 || spec.cp > 1 || spec.ep > 1 || !space_.trains) return;
    for (const int32_t x : divisors(spec.tp)) {
      const int32_t rest = spec.tp / x;
      if (x == 1 || rest == 1) continue;
      add_grid(spec, TensorForm::k2d, {x, rest, 1});
      for (const int32_t z : divisors(rest)) {
        if (z == 1 || rest / z != x) continue;
        add_grid(spec, TensorForm::k25d, {x, x, z});
        if (z == x) add_grid(spec, TensorForm::k3d, {x, x, x});
      }
    }
  }

  void add_grid(StrategySpec spec, TensorForm form, std::array<int32_t, 3> grid) {
    spec.form = form;
    spec.grid = grid;
    add_zero(spec);
  }

  void add_contexts(StrategySpec spec) {
    if (spec.cp == 1) return add_sequence(spec);
    for (const ContextForm form : {ContextForm::kRing, ContextForm::kUlysses, ContextForm::kGather}) {
      spec.context = form;
      add_sequence(spec);
    }
  }

  void add_sequence(StrategySpec spec) {
    add_zero(spec);
    if (spec.tp == 1) return;
    spec.sp = true;
    add_zero(spec);
  }

  void add_zero(StrategySpec spec) {
    const bool spreads = space_.trains && spec.data() * spec.cp > 1;
    for (spec.zero = 0; spec.zero <= (spreads ? 3 : 0); ++spec.zero) {
      spec.keep = false;
      add_pipelines(spec);
      if (!space_.trains || (spec.zero < 3 && !spec.sp && spec.form == TensorForm::k1d)) continue;
      spec.keep = true;
      add_pipelines(spec);
    }
  }

  void add_pipelines(StrategySpec spec) {
    if (spec.pp == 1) return roots_.push_back(spec);
    if (space_.batch % spec.data() != 0) return;
    const int64_t each = space_.batch / spec.data();
    const int64_t most = space_.may_cut ? std::min<int64_t>(each, 4 * spec.pp) : 1;
    for (int64_t count = 1; count <= most; ++count) {
      if (each % count != 0) continue;
      spec.micro_batch = each / count;
      for (const ScheduleKind schedule :
           {ScheduleKind::k1F1B, ScheduleKind::kGpipe, ScheduleKind::kInterleaved, ScheduleKind::kZbH1,
            ScheduleKind::kZbH2, ScheduleKind::kZbV}) {
        spec.schedule = schedule;
        const bool doubled = schedule == ScheduleKind::kInterleaved || schedule == ScheduleKind::kZbV;
        spec.virtual_stages = doubled ? 2 : 1;
        // With one micro-batch all schedules are equal.
        if (count == 1 && schedule != ScheduleKind::k1F1B) continue;
        if (doubled && space_.blocks > 0 && 2 * spec.pp > space_.blocks) continue;
        roots_.push_back(spec);
      }
    }
  }

  const SpaceOfGraph& space_;
  const int32_t devices_;
  std::vector<StrategySpec>& roots_;
};

// The next smaller micro-batch of one data-parallel rank; 0: none.
int64_t smaller_micro_batch(const StrategySpec& spec, int64_t batch) {
  if (batch % spec.data() != 0) return 0;
  const int64_t each = batch / spec.data();
  int64_t size = spec.micro_batch == 0 ? each : spec.micro_batch;
  for (size /= 2; size >= 1; size /= 2)
    if (each % size == 0) return size;
  return 0;
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
    if (devices <= kFew || devices % used == 0) OpenRoots(space, used, roots).add();
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
  const bool pipelined = spec.pp > 1;
  if (space.may_cut && node.last <= SavingStep::kMicroBatch && !pins.micro_batch && (has_words || !pipelined))
    if (const int64_t size = smaller_micro_batch(spec, space.batch); size > 0) {
      below.push_back({spec, SavingStep::kMicroBatch});
      below.back().spec.micro_batch = size;
    }
  if (has_words) return below;
  if (node.last < SavingStep::kRecompute) {
    below.push_back({spec, SavingStep::kRecompute});
    below.back().spec.recompute = RecomputeForm::kFull;
  }
  const bool gathers = (spec.zero == 3 || spec.form != TensorForm::k1d) && !spec.keep;
  if (node.last <= SavingStep::kChunks && gathers && spec.chunks < 4) {
    below.push_back({spec, SavingStep::kChunks});
    below.back().spec.chunks *= 2;
  }
  if (node.last < SavingStep::kOffload) {
    constexpr Tier kDevice = Tier::kDevice;
    const Tier away = space.away;
    for (const OffloadWords& words : {OffloadWords{false, kDevice, kDevice, away, kDevice},
                                      OffloadWords{false, kDevice, kDevice, kDevice, away},
                                      OffloadWords{false, kDevice, away, away, kDevice},
                                      OffloadWords{false, away, away, away, kDevice},
                                      OffloadWords{false, away, away, away, away}}) {
      below.push_back({spec, SavingStep::kOffload});
      below.back().spec.offload = words;
    }
  }
  return below;
}

}  // namespace tessera
