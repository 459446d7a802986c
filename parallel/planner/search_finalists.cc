// Chooses the plans of a search that are measured.
#include <algorithm>
#include <set>
#include <tuple>

#include "parallel/planner/search_run.h"

namespace tessera {

namespace {

// The family of a plan: finalists should differ in more than
// details, since price errors are similar within a family.
auto family_of(const PlanAttempt& it) {
  const StrategySpec& spec = it.node.spec;
  return std::tuple(kind_of(spec), spec.devices(), spec.offload.any(),
                    spec.recompute != RecomputeForm::kNone);
}

}  // namespace

bool SearchRun::decides_by_measuring() const {
  return options_.finalists > 1 && options_.measure && options_.like == nullptr;
}

Result<std::vector<size_t>> SearchRun::finalists(size_t best) {
  std::vector<size_t> order;
  for (size_t i = 0; i < attempts_.size(); ++i)
    if (attempts_[i].fits() &&
        attempts_[i].candidate.step_time_s <= kFinalistTime * attempts_[best].candidate.step_time_s)
      order.push_back(i);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return is_better(attempts_[a], attempts_[b]); });
  std::vector<size_t> chosen = {best};
  std::set seen = {family_of(attempts_[best])};
  for (const bool only_new : {true, false})
    for (const size_t at : order) {
      if (chosen.size() >= static_cast<size_t>(options_.finalists)) return chosen;
      if (std::ranges::find(chosen, at) != chosen.end()) continue;
      if (only_new && seen.contains(family_of(attempts_[at]))) continue;
      if (!attempts_[at].exact) TSR_RETURN_IF_ERROR(finalize(at));
      if (!attempts_[at].fits()) continue;
      seen.insert(family_of(attempts_[at]));
      chosen.push_back(at);
    }
  return chosen;
}

Result<size_t> SearchRun::fastest_measured(size_t best) {
  TSR_ASSIGN_OR_RETURN(const std::vector<size_t> chosen, finalists(best));
  if (chosen.size() == 1) return best;
  std::vector<const Plan*> plans;
  for (const size_t at : chosen) plans.push_back(&attempts_[at].plan);
  TSR_ASSIGN_OR_RETURN(const std::vector<double> seconds, options_.measure(plans));
  for (size_t i = 0; i < chosen.size(); ++i) attempts_[chosen[i]].candidate.measured_s = seconds[i];
  return chosen[static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin())];
}

}  // namespace tessera
