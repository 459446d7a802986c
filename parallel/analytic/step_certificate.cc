#include "parallel/analytic/step_certificate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/base/text.h"
#include "parallel/analytic/certificate_bounds.h"

namespace tessera {

namespace {

// Prices are summed in another order here than in the search.
constexpr double kRounding = 1e-7;

Status wrong(std::string message) {
  return Status(StatusCode::kCorrupt, "certificate: " + std::move(message));
}

bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

std::string words_of(ForeignPlan configuration) { return to_text(configuration); }

class Check {
 public:
  Check(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
        const StepCertificate& certificate)
      : model_(model), cluster_(cluster), options_(options), certificate_(certificate) {}

  Result<CertificateCheck> run() {
    for (const ForeignPlan& plan : step_space(model_, cluster_, options_))
      space_.emplace(words_of(plan), plan);
    TSR_RETURN_IF_ERROR(check_plan_found());
    TSR_RETURN_IF_ERROR(check_coverage());
    double bound = certificate_.step_s;
    for (const CertificateEntry& entry : certificate_.configurations) {
      TSR_RETURN_IF_ERROR(check_entry(entry));
      if (entry.by != ClosedBy::kTooLarge) bound = std::min(bound, entry.bound_s);
    }
    TSR_RETURN_IF_ERROR(check_bound_and_gap(certificate_, bound));
    return check_;
  }

 private:
  // It is of the space, fits, and takes as long as claimed.
  Status check_plan_found() {
    const auto found = space_.find(certificate_.plan);
    if (found == space_.end())
      return wrong(format("the plan found, '{}', is not in the declared space of {} configurations",
                          certificate_.plan, space_.size()));
    const ForeignPlan& plan = found->second;
    const int64_t count = int64_t{plan.pp} * plan.virtual_stages;
    if (static_cast<int64_t>(certificate_.stages.size()) != count)
      return wrong(format("'{}' has {} stages, {} are described", certificate_.plan, count,
                          certificate_.stages.size()));
    int64_t blocks = 0;
    for (const StageBlocks& stage : certificate_.stages) {
      if (stage.blocks < 1 || stage.full < 0 || stage.selective < 0 ||
          stage.full + stage.selective > stage.blocks)
        return wrong(format("a stage of {} blocks, {} of them recomputed and {} selectively", stage.blocks,
                            stage.full, stage.selective));
      blocks += stage.blocks;
    }
    if (blocks != model_.L) return wrong(format("the stages have {} blocks, the model {}", blocks, model_.L));
    const CertificateBounds bounds(model_, cluster_, options_, plan);
    for (int32_t device = 0; device < plan.pp; ++device)
      if (const int64_t bytes = bounds.memory_bytes(device, certificate_.stages); bytes > bounds.limit())
        return wrong(format("the plan found needs {} bytes on stage {}, the limit is {}", bytes, device,
                            bounds.limit()));
    TSR_ASSIGN_OR_RETURN(const StepTime time,
                         step_time(model_, plan, cluster_, options_.global_batch, certificate_.stages));
    if (!equal(time.step_s, certificate_.step_s))
      return wrong(format("the plan found takes {} s, {} s is claimed", time.step_s, certificate_.step_s));
    const auto own =
        std::ranges::find(certificate_.configurations, certificate_.plan, &CertificateEntry::plan);
    if (own == certificate_.configurations.end() || own->by != ClosedBy::kSolved ||
        !equal(own->step_s, certificate_.step_s))
      return wrong(format("'{}' is not among the configurations solved with a step of {} s",
                          certificate_.plan, certificate_.step_s));
    return {};
  }

  // Every configuration of the space once, and nothing else.
  Status check_coverage() {
    std::map<std::string, int> seen;
    for (const CertificateEntry& entry : certificate_.configurations) {
      if (!space_.contains(entry.plan)) return wrong(format("'{}' is not in the declared space", entry.plan));
      if (++seen[entry.plan] > 1) return wrong(format("'{}' stands there twice", entry.plan));
    }
    for (const auto& [words, plan] : space_)
      if (!seen.contains(words))
        return wrong(format("'{}' of the declared space is missing: {} of {} configurations are closed",
                            words, seen.size(), space_.size()));
    check_.configurations = static_cast<int64_t>(space_.size());
    return {};
  }

  Status check_entry(const CertificateEntry& entry) {
    const CertificateBounds bounds(model_, cluster_, options_, space_.at(entry.plan));
    if (entry.by == ClosedBy::kTooLarge) {
      if (!bounds.none_fits())
        return wrong(
            format("'{}' is closed as too large, but fits {} bytes a device", entry.plan, bounds.limit()));
      ++check_.too_large;
      return {};
    }
    if (!std::isfinite(entry.bound_s) || entry.bound_s <= 0)
      return wrong(format("'{}' has a bound of {} s", entry.plan, entry.bound_s));
    if (entry.by == ClosedBy::kBound && entry.bound_s < certificate_.step_s)
      return wrong(format("'{}' is closed by a bound of {} s, below the {} s of the plan found", entry.plan,
                          entry.bound_s, certificate_.step_s));
    if (entry.by == ClosedBy::kSolved &&
        (entry.step_s < certificate_.step_s || entry.step_s < entry.bound_s * (1 - kRounding)))
      return wrong(format("'{}' is solved in {} s with a bound of {} s, the plan found takes {} s",
                          entry.plan, entry.step_s, entry.bound_s, certificate_.step_s));
    // Whatever it says beyond the plan found closes it as well.
    const double target = std::min(entry.bound_s, certificate_.step_s) * (1 - kRounding);
    if (bounds.closed_form() >= target) {
      ++check_.by_closed_form;
      return {};
    }
    if (!bounds.none_below(target))
      return wrong(
          format("'{}' claims that none of its plans is below {} s; a cut of it is not proved to be, "
                 "its closed form gives {} s",
                 entry.plan, target, bounds.closed_form()));
    ++check_.by_cuts;
    return {};
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  const StepCertificate& certificate_;
  std::map<std::string, ForeignPlan> space_;
  CertificateCheck check_;
};

}  // namespace

Status check_bound_and_gap(const StepCertificate& certificate, double bound_s) {
  if (!equal(bound_s, certificate.bound_s))
    return wrong(format("a bound of {} s is claimed, the configurations' bounds give {} s",
                        certificate.bound_s, bound_s));
  const double gap = (certificate.step_s - bound_s) / certificate.step_s;
  if (std::abs(gap - certificate.gap) > 1e-12)
    return wrong(format("a gap of {} is claimed, step and bound give {}", certificate.gap, gap));
  return {};
}

StepCertificate certificate_of(const StepSearchResult& result) {
  StepCertificate certificate;
  // The configuration, without what is decided block by block.
  for (const ClosedConfiguration& closed : result.closed) {
    certificate.configurations.push_back({words_of(closed.plan), closed.by, closed.bound_s, closed.step_s});
    if (certificate.plan.empty() && closed.by == ClosedBy::kSolved &&
        closed.step_s == result.best.time.step_s) {
      ForeignPlan same = result.best.plan;
      same.recompute = closed.plan.recompute;
      if (words_of(same) == words_of(closed.plan)) certificate.plan = words_of(closed.plan);
    }
  }
  certificate.stages = result.best.stages;
  certificate.step_s = result.best.time.step_s;
  certificate.bound_s = result.bound_s;
  certificate.gap = result.gap;
  return certificate;
}

Result<CertificateCheck> check_certificate(const TransformerShape& model, const Cluster& cluster,
                                           const StepSearchOptions& options,
                                           const StepCertificate& certificate) {
  if (cluster.devices.empty() || options.global_batch < 1)
    return wrong(format("a cluster of {} devices and a batch of {}, wanted at least one of each",
                        cluster.devices.size(), options.global_batch));
  return Check(model, cluster, options, certificate).run();
}

}  // namespace tessera
