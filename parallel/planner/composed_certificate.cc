#include "parallel/planner/composed_certificate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/planner/best_first.h"
#include "parallel/planner/composed_bound.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

namespace {

// Seconds are sums of the same terms in the same order; texts keep 17 digits.
constexpr double kSame = 1e-9;

bool is_same(double a, double b) { return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b)); }

Status wrong(std::string message) {
  return Status(StatusCode::kCorrupt, "certificate: " + std::move(message));
}

class CertificateChecker {
 public:
  CertificateChecker(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                     const ComposedSearchOptions& options, const StrategyPins& pins,
                     const ComposedCertificate& certificate)
      : options_(options),
        recompute_(pins.recompute ? pins.spec.recompute : RecomputeForm::kAuto),
        certificate_(certificate),
        composer_(model, cluster, catalog, options.global_batch, options.memory_limit),
        graph_(composed_graph(model, cluster, options)),
        space_(graph_, pins, static_cast<int64_t>(cluster.devices.size())) {
    for (const ComposedEntry& entry : certificate.composed) listed_.emplace(entry.strategy, &entry);
    for (const PlanGroup& group : space_.groups())
      for (const StrategySpec& plan : space_.plans_of(group.spec)) plans_.insert(without_recompute(plan));
  }

  Result<CertificateCheck> run() {
    TSR_RETURN_IF_ERROR(check_plan());
    TSR_RETURN_IF_ERROR(check_listed());
    for (const PlanGroup& group : space_.groups()) TSR_RETURN_IF_ERROR(check(group));
    return check_;
  }

 private:
  static std::string without_recompute(StrategySpec spec) {
    spec.recompute = RecomputeForm::kNone;
    return to_text(spec);
  }

  Status check_plan() {
    const auto at = listed_.find(certificate_.plan);
    if (at == listed_.end()) return wrong(format("the plan '{}' is not listed", certificate_.plan));
    const ComposedEntry& it = *at->second;
    if (!is_same(it.seconds, certificate_.step_s))
      return wrong(format("a step of {} s is claimed, '{}' is listed with {}", certificate_.step_s,
                          certificate_.plan, it.seconds));
    if (it.bytes > options_.memory_limit)
      return wrong(
          format("'{}' takes {} bytes, the limit is {}", certificate_.plan, it.bytes, options_.memory_limit));
    if (!(certificate_.bound_s > 0) || certificate_.bound_s > certificate_.step_s * (1 + kSame))
      return wrong(format("a bound of {} s for a step of {} s", certificate_.bound_s, certificate_.step_s));
    return {};
  }

  // The largest factor by which a plan undercuts its bound scales all bounds.
  Status check_listed() {
    for (const auto& [strategy, entry] : listed_) {
      TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(strategy));
      StrategySpec spec = pins.spec;
      if (!plans_.contains(without_recompute(spec)))
        return wrong(format("'{}' is listed, and is no plan of the space", strategy));
      cancellation_point();
      spec.recompute = recompute_;
      const Result<ComposedPlan> plan = composer_.compose(spec);
      if (!plan.ok()) return wrong(format("'{}' is listed: {}", strategy, plan.status().message()));
      if (to_text(plan->spec) != strategy)
        return wrong(format("'{}' is listed, and comes to '{}'", strategy, to_text(plan->spec)));
      if (!is_same(plan->time.step_s, entry->seconds) || plan->most_bytes() != entry->bytes)
        return wrong(format("'{}' is listed with {} s and {} bytes, found {} s and {} bytes", strategy,
                            entry->seconds, entry->bytes, plan->time.step_s, plan->most_bytes()));
      if (entry->bytes <= options_.memory_limit && entry->seconds < certificate_.step_s * (1 - kSame))
        return wrong(format("'{}' fits and takes {} s, the step claimed takes {}", strategy, entry->seconds,
                            certificate_.step_s));
      ++check_.composed;
      StrategySpec group = spec;
      group.dp = group.pp = 1, group.zero = 0, group.schedule = ScheduleKind::kNone, group.virtual_stages = 1;
      group.recompute = RecomputeForm::kNone;
      Result<GroupBound> bound = GroupBound::of(group, composer_);
      if (!bound.ok()) continue;
      if (const double bound_s = bound->seconds(spec); std::isfinite(bound_s)) trust_.observe(bound_s, entry->seconds);
    }
    return {};
  }

  Status check(const PlanGroup& group) {
    cancellation_point();
    Result<GroupBound> bound = GroupBound::of(group.spec, composer_);
    if (!bound.ok()) return {};  // inadmissible for the model
    const bool is_dead = bound->bytes() > options_.memory_limit;
    for (const StrategySpec& plan : space_.plans_of(group.spec)) {
      ++check_.configurations;
      const double bound_s = bound->seconds(plan) * trust_.factor;
      if (is_dead || std::isinf(bound_s)) {
        ++check_.too_large;
        continue;
      }
      if (bound_s >= certificate_.bound_s * (1 - kSame)) {
        ++check_.closed_by_bound;
        continue;
      }
      Result<ComposedPlan> composed = composer_.compose(plan);
      if (composed.ok() && !listed_.contains(to_text(composed->spec)))
        return wrong(format("'{}' is not listed, and its bound is {} s where {} is claimed",
                            to_text(composed->spec), bound_s, certificate_.bound_s));
    }
    return {};
  }

  const ComposedSearchOptions& options_;
  const RecomputeForm recompute_;
  const ComposedCertificate& certificate_;
  PlanComposer composer_;
  const SpaceOfGraph graph_;
  const ComposedSpace space_;
  std::map<std::string, const ComposedEntry*> listed_;
  std::set<std::string> plans_;  // of the space, regardless of recomputation
  BoundTrust trust_;
  CertificateCheck check_;
};

}  // namespace

ComposedCertificate certificate_of(const ComposedSearchResult& result) {
  return {to_text(result.fastest.spec), result.fastest.time.step_s, result.search.bound_s, result.entries};
}

Result<CertificateCheck> check_certificate(const ComposedModel& model, const Cluster& cluster,
                                           const KernelCatalog& catalog, const ComposedSearchOptions& options,
                                           const ComposedCertificate& certificate) {
  TSR_ASSIGN_OR_RETURN(StrategyPins pins, parse_parallel(options.parallel));
  if (pins.spec.offload.automatic) pins.spec.offload = {};
  return CertificateChecker(model, cluster, catalog, options, pins, certificate).run();
}

}  // namespace tessera
