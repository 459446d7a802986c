#include "parallel/analytic/wide_space.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel/analytic/block_time.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

// All that is chosen before pipeline and data parallelism divide the work.
struct Slice {
  ForeignPlan plan;  // tp, cp, ep, sp, mb
  int32_t devices() const { return plan.tp * plan.cp * plan.ep; }
};

std::vector<Slice> slices(const TransformerShape& model, const StepSearchOptions& options, int32_t devices) {
  std::vector<Slice> all;
  const std::vector<int32_t> micro_batches = divisors(options.global_batch);
  const auto add = [&](ForeignPlan plan) {
    for (const bool sp : {true, false}) {
      if (options.pin_sequence_parallel ? sp != options.features.sequence_parallel : (sp && plan.tp == 1))
        continue;
      plan.sequence_parallel = sp;
      for (const int32_t mb : micro_batches) {
        plan.micro_batch = mb;
        // Whole sequences do what parts of several do, and send less: with a common divisor of cp and mb
        // more data parallelism takes its place.
        if (std::gcd(mb, plan.cp) > 1 && !options.cp && !options.dp && !options.micro_batch) continue;
        if (allowed(options.micro_batch, plan.micro_batch) && options.global_batch % (mb * plan.ep) == 0)
          all.push_back({plan});
      }
    }
  };
  // Grids: rows have sequences of their own, columns heads.
  const bool grids = model.E == 0 && options.features.lora == 0 && !options.features.fp8_linears &&
                     allowed(options.cp, 1) && allowed(options.ep, 1) &&
                     !(options.pin_sequence_parallel && options.features.sequence_parallel);
  const auto add_grid = [&](TensorForm form, int64_t x, int64_t y, int64_t z) {
    ForeignPlan plan = options.features;
    plan.form = form, plan.grid = {static_cast<int32_t>(x), static_cast<int32_t>(y), static_cast<int32_t>(z)};
    plan.tp = static_cast<int32_t>(x * y * z), plan.sequence_parallel = false;
    plan.cp = plan.ep = 1, plan.context = ContextForm::kNone;
    if (!allowed(options.tp, plan.tp)) return;
    // A pinned width is pinned with its form.
    if (options.tp && (options.features.form != form || options.features.grid != plan.grid)) return;
    for (const int32_t mb : micro_batches) {
      plan.micro_batch = mb;
      if (mb % (x * z) == 0 && allowed(options.micro_batch, plan.micro_batch)) all.push_back({plan});
    }
  };
  for (const int32_t y : grids ? divisors(model.H) : std::vector<int32_t>()) {
    if (y == 1 || y > devices || (model.KV % y != 0 && y % model.KV != 0)) continue;
    for (const int32_t x : micro_batches) {
      if (x == 1 || int64_t{x} * y > devices) continue;
      add_grid(TensorForm::k2d, x, y, 1);
      if (x != y) continue;
      for (const int32_t z : micro_batches)
        if (z > 1 && int64_t{x} * y * z <= devices) add_grid(TensorForm::k25d, x, y, z);
      if (int64_t{x} * y * y <= devices) add_grid(TensorForm::k3d, x, y, y);
    }
  }
  for (const int32_t tp : divisors(model.H)) {
    if (options.tp && options.features.form != TensorForm::k1d) break;
    if (!allowed(options.tp, tp) || (model.KV % tp != 0 && tp % model.KV != 0) || tp > devices) continue;
    for (const int32_t ep : model.E > 0 ? divisors(model.E) : std::vector<int32_t>{1}) {
      if (!allowed(options.ep, ep)) continue;
      ForeignPlan plan = options.features;
      plan.tp = tp, plan.ep = ep, plan.cp = 1, plan.context = ContextForm::kNone;
      if (int64_t{tp} * ep > devices) continue;
      if (allowed(options.cp, 1)) add(plan);
      for (const int32_t cp : divisors(model.T)) {
        if (cp == 1 || !allowed(options.cp, cp) || int64_t{tp} * ep * cp > devices) continue;
        plan.cp = cp;
        for (const ContextForm form : {ContextForm::kRing, ContextForm::kUlysses, ContextForm::kGather}) {
          // Gathering first is never faster than a ring, and holds more: only where it is asked for.
          if (options.cp ? form != options.features.context : form == ContextForm::kGather) continue;
          if (form == ContextForm::kUlysses && model.KV % (int64_t{tp} * cp) != 0) continue;
          plan.context = form;
          add(plan);
        }
      }
    }
  }
  return all;
}

}  // namespace

StepFamilies step_families(const TransformerShape& model, const Cluster& cluster,
                           const StepSearchOptions& options, double best_s) {
  StepFamilies families;
  families.least_closed_s = INFINITY;
  const auto devices = static_cast<int32_t>(cluster.devices.size());
  const Recompute least = options.recompute.value_or(Recompute::kNone);
  const std::vector<int32_t> parts = divisors(options.global_batch);
  for (const Slice& slice : slices(model, options, devices)) {
    ForeignPlan plan = slice.plan;
    plan.recompute = least;
    const auto seconds = [](const BlockTime& time) {
      // Whatever the host's pace, devices do all of this.
      return time.forward.compute_s + time.forward.collective_s + time.backward.compute_s +
             time.backward.collective_s + time.recompute.compute_s + time.recompute.collective_s;
    };
    const double work = static_cast<double>(model.L) * seconds(block_time(model, plan, cluster)) +
                        seconds(embedding_time(model, plan, cluster)) +
                        seconds(head_time(model, plan, cluster));
    plan.recompute = options.features.recompute;
    std::shared_ptr<const MeshTimes> times;
    const int32_t rest = devices / slice.devices();
    const int64_t sequences = options.global_batch / (plan.micro_batch * plan.ep);
    for (int32_t pp = 1; pp <= std::min<int64_t>(rest, model.L); ++pp) {
      if (!allowed(options.pp, pp)) continue;
      plan.pp = pp;
      // The most data parallelism first: less of it only means more micro-batches.
      for (size_t i = parts.size(); i-- > 0;) {
        const int32_t dp = parts[i];
        if (sequences % dp != 0 || int64_t{dp} * pp > rest || !allowed(options.dp, dp)) continue;
        plan.dp = dp;
        const double bound = static_cast<double>(sequences / dp) * work / pp * (1 - 1e-9);
        if (bound >= best_s) {
          families.least_closed_s = std::min(families.least_closed_s, bound);
          ++families.closed;
          break;
        }
        if (!times) times = std::make_shared<const MeshTimes>(model, cluster, options, plan);
        families.open.push_back({plan, bound, times});
      }
    }
  }
  std::ranges::stable_sort(families.open, {}, &StepFamily::bound_s);
  return families;
}

std::vector<StepConfigurations> configurations_of(const ForeignPlan& mesh, const TransformerShape& model,
                                                  const StepSearchOptions& options) {
  std::vector<StepConfigurations> all;
  ForeignPlan plan = mesh;
  const int64_t m = options.global_batch / (plan.micro_batch * plan.data());
  const auto add = [&](ForeignSchedule schedule, int32_t chunks, int32_t chunks_to) {
    if (options.virtual_stages) {
      if (*options.virtual_stages < chunks || *options.virtual_stages > chunks_to) return;
      chunks = chunks_to = *options.virtual_stages;
    }
    if (!allowed(options.schedule, schedule) || chunks > chunks_to) return;
    plan.schedule = schedule, plan.virtual_stages = chunks;
    for (const int32_t zero : {0, 1, 2, 3}) {
      if (!allowed(options.zero, zero) || (plan.replicas() == 1 && zero > 0 && !options.zero)) continue;
      plan.zero = zero;
      all.push_back({plan, chunks_to});
    }
  };
  if (plan.pp == 1) {
    add(options.schedule.value_or(ForeignSchedule::k1F1B), 1, 1);
    return all;
  }
  add(ForeignSchedule::k1F1B, 1, 1);
  add(ForeignSchedule::kGpipe, 1, 1);
  add(ForeignSchedule::kZbH1, 1, 1);
  add(ForeignSchedule::kZbH2, 1, 1);
  if (2 * plan.pp <= model.L) add(ForeignSchedule::kZbV, 2, 2);
  if (m % plan.pp == 0) add(ForeignSchedule::kInterleaved, 2, static_cast<int32_t>(model.L / plan.pp));
  return all;
}

}  // namespace tessera
