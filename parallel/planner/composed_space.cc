#include "parallel/planner/composed_space.h"

#include <algorithm>
#include <bit>
#include <set>

#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

constexpr int64_t kMostSequences = 64;    // of an unpinned micro-batch
constexpr int64_t kLeastTokens = 4096;    // of a rank's part of a sequence, if context is not pinned
constexpr int32_t kMostTensorParts = 64;  // if tp is not pinned

int32_t smallest_prime(int32_t n) {
  for (int32_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// The spec with fewer parts of its last kind.
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

ComposedSpace::ComposedSpace(const SpaceOfGraph& graph, const StrategyPins& pins, int64_t devices)
    : graph_(graph), pins_(pins), devices_(devices) {}

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
  if (!pins_.cp) base.context = ContextForm::kNone;
  const auto add_contexts = [&](StrategySpec spec) {
    spec.sp = spec.tp > 1 && spec.form == TensorForm::k1d;
    if (pins_.sp && !spec.sp) return;
    for (const int32_t cp : divisors(devices_ / spec.tp)) {
      if (pins_.cp ? cp != pins_.spec.cp : cp > 1 && graph_.tokens < kLeastTokens * cp) continue;
      spec.cp = cp;
      for (const ContextForm form : {ContextForm::kRing, ContextForm::kUlysses, ContextForm::kGather}) {
        if (cp == 1 && form != ContextForm::kRing) continue;
        if (pins_.cp && cp > 1 && form != pins_.spec.context) continue;
        spec.context = cp == 1 ? ContextForm::kNone : form;
        for (const int32_t ep : divisors(devices_ / spec.tp / cp)) {
          if (pins_.ep ? ep != pins_.spec.ep : ep > 1 && (graph_.experts == 0 || graph_.experts % ep != 0))
            continue;
          spec.ep = ep;
          all.push_back(spec);
        }
      }
    }
  };
  for (const int32_t tp : divisors(devices_)) {
    if (pins_.tp ? tp != pins_.spec.tp : tp > kMostTensorParts) continue;
    base.tp = tp;
    add_contexts(base);
    if (pins_.tp || pins_.sp || pins_.cp || pins_.ep || pins_.pp || tp < 4) continue;
    for (const int32_t x : divisors(tp)) {
      const int32_t y = tp / x;
      StrategySpec grid = base;
      if (x > 1 && x <= y && y <= 2 * x) {
        grid.form = TensorForm::k2d, grid.grid = {x, y, 1};
        all.push_back(grid);
      }
      if (x > 1 && tp % (x * x) == 0 && tp / (x * x) > 1) {
        const int32_t z = tp / (x * x);
        grid.form = z == x ? TensorForm::k3d : TensorForm::k25d, grid.grid = {x, x, z};
        all.push_back(grid);
      }
    }
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
    const bool has_parent = static_cast<size_t>(above) < each.size() && *parent != split;
    for (int32_t i = 0; i < count; ++i) {
      PlanGroup group{.spec = split, .parent = has_parent ? above * count + i : -1, .smaller = -1};
      group.spec.micro_batch = sizes[static_cast<size_t>(i)];
      if (i > 0) group.smaller = static_cast<int32_t>(all.size()) - 1;
      all.push_back(group);
    }
  }
  return all;
}

void ComposedSpace::add_schedules(StrategySpec spec, std::vector<StrategySpec>& plans) const {
  spec.schedule = ScheduleKind::kNone, spec.virtual_stages = 1;
  if (spec.pp == 1) return plans.push_back(spec);
  const auto add = [&](ScheduleKind kind, int32_t virtual_stages) {
    const bool is_pinned = pins_.pp && pins_.spec.pp > 1;
    if (is_pinned && (kind != pins_.spec.schedule || virtual_stages != pins_.spec.virtual_stages)) return;
    if (graph_.blocks > 0 && int64_t{spec.pp} * virtual_stages > graph_.blocks) return;
    spec.schedule = kind, spec.virtual_stages = virtual_stages;
    plans.push_back(spec);
  };
  add(ScheduleKind::k1F1B, 1);
  if (pins_.pp) add(ScheduleKind::kGpipe, 1);  // more memory than 1f1b, and no faster
  // With one micro-batch all schedules are equal.
  if (!pins_.pp && graph_.batch == spec.micro_batch * spec.data()) return;
  std::set<int32_t> chunks = {2, 3, 4, 6, 8, 12};
  if (pins_.pp && pins_.spec.schedule == ScheduleKind::kInterleaved) chunks = {pins_.spec.virtual_stages};
  for (const int32_t v : chunks) add(ScheduleKind::kInterleaved, v);
  add(ScheduleKind::kZbH1, 1);
  add(ScheduleKind::kZbH2, 1);
  add(ScheduleKind::kZbV, 2);
}

std::vector<StrategySpec> ComposedSpace::plans_of(const StrategySpec& group) const {
  std::vector<StrategySpec> plans;
  const int64_t rest = devices_ / (int64_t{group.tp} * group.cp * group.ep);
  for (const int32_t pp : divisors(rest)) {
    StrategySpec spec = group;
    spec.pp = pp, spec.dp = static_cast<int32_t>(rest / pp);
    if ((pins_.pp && pp != pins_.spec.pp) || (pins_.dp && spec.dp != pins_.spec.dp)) continue;
    if (pp > 1 && ((graph_.blocks > 0 && pp > graph_.blocks) || (!pins_.tp && group.form != TensorForm::k1d)))
      continue;
    const int64_t at_once = spec.micro_batch * spec.data();
    if (graph_.batch % at_once != 0 || graph_.batch / at_once > kMostMicroBatches) continue;
    if (pins_.owt && (spec.dp == 1 || spec.ep > 1 || spec.form != TensorForm::k1d)) continue;
    spec.recompute = pins_.recompute ? pins_.spec.recompute : RecomputeForm::kAuto;
    const bool spreads = spec.data() * spec.cp > 1;
    // ZeRO 1 is never slower than none, and saves memory.
    for (int32_t zero = 0; zero <= 3; ++zero) {
      if (pins_.zero ? zero != pins_.spec.zero || (zero > 0 && !spreads) : (zero > 0) != spreads) continue;
      spec.zero = zero, spec.zero_group = pins_.zero ? pins_.spec.zero_group : 0;
      add_schedules(spec, plans);
    }
  }
  return plans;
}

}  // namespace tessera
