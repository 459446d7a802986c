#include "parallel/analytic/step_search.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "graph/base/text.h"
#include "parallel/analytic/device_time.h"
#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/analytic/least_step.h"
#include "parallel/analytic/wide_search.h"

namespace tessera {

namespace {

struct Configuration {
  ForeignPlan plan;
  double bound_s = 0;
};

bool same_shape(const ForeignPlan& a, const ForeignPlan& b) {
  return a.tp == b.tp && a.dp == b.dp && a.pp == b.pp && a.micro_batch == b.micro_batch;
}

// A seed need not be the best, only close to it: the whole space, which has all of this, is searched for
// that.
constexpr double kSeedGap = 0.01;
constexpr double kSeedRunnersUp = 1.25;  // what is further behind is not told exactly

// Without options.wide. Where a seed is all that is wanted, not every number of chunks is tried.
Result<StepSearchResult> search_narrow(const TransformerShape& model, const Cluster& cluster,
                                       const StepSearchOptions& options, int64_t limit, bool seed) {
  StepSearchResult result;
  std::vector<Configuration> open;
  for (const ForeignPlan& plan : step_space(model, cluster, options, seed))
    open.push_back({plan, StepSolver(model, cluster, options, plan, limit).bound()});
  result.configurations = static_cast<int64_t>(open.size());
  if (open.empty())
    return Status(
        StatusCode::kInvalidArgument,
        format("no combination of tp (a divisor of {} heads), dp (a divisor of batch {}) and pp uses {} "
               "devices with what is pinned",
               model.H, options.global_batch, cluster.devices.size()));
  std::ranges::stable_sort(open, {}, &Configuration::bound_s);

  std::vector<FoundStep> found;
  double best = INFINITY, bound = INFINITY;
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i].bound_s >= (seed ? (1 - kSeedGap) * best : best)) {
      result.closed_by_bound = static_cast<int64_t>(open.size() - i);
      bound = std::min(bound, open[i].bound_s);
      break;
    }
    const StepSolver solver(model, cluster, options, open[i].plan, limit);
    double own_bound = open[i].bound_s;
    auto one = solver.solve(own_bound, seed ? kSeedRunnersUp * best : INFINITY);
    if (!one.ok()) {
      if (one.status().code() != StatusCode::kOutOfMemory) return one.status();
      ++result.too_large;
      continue;
    }
    ++result.solved;
    own_bound = std::max(own_bound, open[i].bound_s);
    bound = std::min(bound, own_bound);
    if (seed && one->time.step_s >= kSeedRunnersUp * best) continue;
    best = std::min(best, one->time.step_s);
    found.push_back(std::move(*one));
  }
  if (found.empty() && options.advise) return nothing_fits(model, cluster, options);
  if (found.empty())
    return Status(StatusCode::kOutOfMemory, format("no plan fits {} a device", bytes_text(limit)));
  std::ranges::stable_sort(found, {}, [](const FoundStep& step) { return step.time.step_s; });
  result.best = found[0];
  for (size_t i = 1; i < found.size() && result.runners_up.size() < options.runners_up; ++i) {
    const auto alike = [&](const FoundStep& other) { return same_shape(other.plan, found[i].plan); };
    if (!alike(result.best) && std::ranges::none_of(result.runners_up, alike))
      result.runners_up.push_back(found[i]);
  }
  result.bound_s = std::min(bound, best);
  result.gap = (best - result.bound_s) / best;
  return result;
}

}  // namespace

Result<StepSearchResult> search_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options) {
  if (cluster.devices.empty() || options.global_batch < 1)
    return Status(StatusCode::kInvalidArgument,
                  format("search: found {} devices and batch {}, wanted at least one of each",
                         cluster.devices.size(), options.global_batch));
  TSR_RETURN_IF_ERROR(check_fp8_linears(model, options.features, {&cluster, 1}));
  if (!check_one_kind(cluster).ok()) return search_step(model, Fleet{{cluster}}, options);
  const int64_t limit = options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes;
  if (options.wide) {
    // What the narrower search finds closes most of the whole space before it is made. It knows no pins of
    // the rest.
    StepSearchOptions narrow = options;
    narrow.wide = narrow.advise = false;
    const bool pinned = options.schedule || options.cp || options.ep ||
                        options.features.form != TensorForm::k1d || std::isfinite(options.most_s);
    const auto seed = pinned ? Result<StepSearchResult>(Status(StatusCode::kUnsupported, "pinned"))
                             : search_narrow(model, cluster, narrow, limit, true);
    auto found = search_wide(model, cluster, options, seed.ok() ? &*seed : nullptr, limit);
    if (!found.ok() && options.last_resort && !(options.shard && options.offload)) {
      StepSearchOptions all = options;
      all.shard = all.offload = true;
      auto other = search_wide(model, cluster, all, nullptr, limit);
      if (other.ok()) {
        other->last_resort = true;
        return other;
      }
    }
    // The narrower search knows what would do.
    if (!found.ok() && !pinned && options.advise && seed.status().code() == StatusCode::kOutOfMemory)
      return nothing_fits(model, cluster, options);
    return !found.ok() && !pinned ? seed : found;
  }
  return search_narrow(model, cluster, options, limit, false);
}

}  // namespace tessera
