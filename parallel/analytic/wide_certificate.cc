#include "parallel/analytic/wide_certificate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/base/text.h"
#include "parallel/analytic/offload_time.h"
#include "parallel/analytic/wide_solver.h"
#include "parallel/analytic/wide_space.h"

namespace tessera {

namespace {

// Bounds are computed as they were, but against the plan found instead of earlier ones.
constexpr double kRounding = 1e-9;
// Configurations that a search against the plan found alone might close less well are listed, too.
constexpr double kListed = 1.02;

Status wrong(std::string message) {
  return Status(StatusCode::kCorrupt, "certificate: " + std::move(message));
}

bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

// What the search decides inside a configuration is not in its name.
std::string configuration_of(ForeignPlan plan) {
  plan.recompute = Recompute::kNone;
  plan.offload_activations = 0;
  return to_text(plan);
}

std::string mesh_of(ForeignPlan plan) {
  plan.schedule = ForeignSchedule::k1F1B, plan.virtual_stages = 1, plan.zero = 0;
  plan.sharded_attention = plan.sharded_mlp = 0, plan.chunks = 1;
  plan.offload_optimizer = plan.offload_params = 0;
  return configuration_of(plan);
}

class Check {
 public:
  Check(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
        const StepCertificate& certificate)
      : model_(model),
        cluster_(cluster),
        options_(options),
        certificate_(certificate),
        limit_(options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes) {}

  Result<CertificateCheck> run() {
    TSR_RETURN_IF_ERROR(check_listed());
    TSR_RETURN_IF_ERROR(check_plan_found());
    const StepFamilies families = step_families(model_, cluster_, options_, certificate_.step_s);
    check_.configurations = check_.by_closed_form = families.closed;
    bool known = false;
    const std::string mesh = mesh_of(plan_);
    for (const StepFamily& family : families.open) {
      known = known || mesh_of(family.plan) == mesh;
      const MeshTimes times(*family.alike, options_, family.plan);
      if (none_below(model_, cluster_, options_, family.plan, times, limit_, certificate_.step_s)) {
        ++check_.configurations, ++check_.by_closed_form;
        continue;
      }
      for (const StepConfigurations& of : configurations_of(family.plan, model_, options_)) {
        check_.configurations += of.count();
        TSR_RETURN_IF_ERROR(prove(of, family.bound_s, times));
      }
    }
    if (!known)
      return wrong(format("the plan found, '{}', is of no mesh of the declared space", certificate_.plan));
    for (const auto& [words, entry] : listed_)
      if (!seen_.contains(words) && entry->bound_s < certificate_.step_s * (1 - 1e-7))
        return wrong(
            format("'{}' is listed, but is not left open by a closed form in the declared space", words));
    return check_;
  }

 private:
  Status check_listed() {
    double bound = certificate_.step_s;
    for (const CertificateEntry& entry : certificate_.configurations) {
      if (!(entry.bound_s > 0) || !(entry.step_s > 0))
        return wrong(
            format("'{}' has a bound of {} s against {} s", entry.plan, entry.bound_s, entry.step_s));
      if (!listed_.emplace(entry.plan, &entry).second)
        return wrong(format("'{}' stands there twice", entry.plan));
      bound = std::min(bound, entry.bound_s);
    }
    if (!equal(bound, certificate_.bound_s))
      return wrong(format("a bound of {} s is claimed, the configurations' bounds give {} s",
                          certificate_.bound_s, bound));
    const double gap = (certificate_.step_s - bound) / certificate_.step_s;
    if (std::abs(gap - certificate_.gap) > 1e-12)
      return wrong(format("a gap of {} is claimed, step and bound give {}", certificate_.gap, gap));
    return {};
  }

  // It fits and takes as long as claimed; whether its mesh is of the space is seen on the way through.
  Status check_plan_found() {
    auto parsed = parse_foreign_plan(certificate_.plan, "");
    if (!parsed.ok()) return wrong(format("the plan found: {}", parsed.status().message()));
    plan_ = options_.features;
    const ForeignPlan& given = *parsed;
    plan_.tp = given.tp, plan_.dp = given.dp, plan_.pp = given.pp, plan_.form = given.form;
    plan_.grid = given.grid, plan_.cp = given.cp, plan_.context = given.context, plan_.ep = given.ep;
    plan_.schedule = given.schedule, plan_.virtual_stages = given.virtual_stages;
    plan_.micro_batch = given.micro_batch, plan_.recompute = given.recompute, plan_.zero = given.zero;
    plan_.sharded_attention = given.sharded_attention, plan_.sharded_mlp = given.sharded_mlp;
    plan_.chunks = given.chunks, plan_.offload_optimizer = given.offload_optimizer;
    plan_.offload_params = given.offload_params, plan_.offload_activations = given.offload_activations;
    plan_.sequence_parallel = certificate_.plan.find(",sp") != std::string::npos;
    const bool as_pinned =
        allowed(options_.tp, plan_.tp) && allowed(options_.dp, plan_.dp) && allowed(options_.pp, plan_.pp) &&
        allowed(options_.cp, plan_.cp) && allowed(options_.ep, plan_.ep) &&
        allowed(options_.zero, plan_.zero) && allowed(options_.micro_batch, plan_.micro_batch) &&
        allowed(options_.virtual_stages, plan_.virtual_stages) &&
        (plan_.pp == 1 || allowed(options_.schedule, plan_.schedule)) &&
        (options_.shard || (plan_.sharded_attention == options_.features.sharded_attention &&
                            plan_.sharded_mlp == options_.features.sharded_mlp));
    if (!as_pinned) return wrong(format("the plan found, '{}', is not as asked for", certificate_.plan));
    const auto count = static_cast<int64_t>(plan_.pp) * plan_.virtual_stages;
    if (static_cast<int64_t>(certificate_.stages.size()) != count)
      return wrong(format("'{}' has {} stages, {} are described", certificate_.plan, count,
                          certificate_.stages.size()));
    std::vector<StageBlocks> devices(static_cast<size_t>(plan_.pp));
    int64_t blocks = 0;
    for (size_t v = 0; v < certificate_.stages.size(); ++v) {
      const StageBlocks& stage = certificate_.stages[v];
      StageBlocks& whole = devices[static_cast<size_t>(device_of(plan_, static_cast<int32_t>(v)))];
      int64_t special = stage.full + stage.selective;
      bool counts = stage.blocks >= 1 && stage.full >= 0 && stage.selective >= 0;
      for (size_t q = 0; q < 4; ++q) {
        counts = counts && stage.offloaded[q] >= 0 &&
                 (stage.offloaded[q] == 0 || options_.offload || options_.features.offload_activations > 0);
        special += stage.offloaded[q], whole.offloaded[q] += stage.offloaded[q];
      }
      if (options_.recompute)
        counts = counts && stage.full == (*options_.recompute == Recompute::kFull ? stage.blocks : 0) &&
                 stage.selective == (*options_.recompute == Recompute::kSelective ? stage.blocks : 0);
      if (!counts || special > stage.blocks)
        return wrong(format("a stage of {} blocks, {} of them recomputed and {} selectively", stage.blocks,
                            stage.full, stage.selective));
      whole.blocks += stage.blocks, whole.full += stage.full, whole.selective += stage.selective;
      blocks += stage.blocks;
    }
    if (blocks != model_.L) return wrong(format("the stages have {} blocks, the model {}", blocks, model_.L));
    TSR_RETURN_IF_ERROR(check_foreign_plan(plan_, model_, options_.global_batch,
                                           static_cast<int32_t>(cluster_.devices.size())));
    const StageTimes times(model_, plan_, cluster_);
    const int64_t m = options_.global_batch / (plan_.micro_batch * plan_.data());
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const StageMemory held = times.memory(devices[static_cast<size_t>(d)], d == 0, holds_head(plan_, d),
                                            in_flight(plan_, d, m), plan_.virtual_stages);
      if (held.total() > limit_)
        return wrong(
            format("the plan found needs {} bytes on stage {}, the limit is {}", held.total(), d, limit_));
      if (held.host > host_share_bytes(cluster_))
        return wrong(format("the plan found leaves {} bytes of stage {} on the host, a device's share is {}",
                            held.host, d, host_share_bytes(cluster_)));
    }
    TSR_ASSIGN_OR_RETURN(const StepTime time,
                         step_time(model_, plan_, cluster_, options_.global_batch, certificate_.stages));
    if (!equal(time.step_s, certificate_.step_s))
      return wrong(format("the plan found takes {} s, {} s is claimed", time.step_s, certificate_.step_s));
    return {};
  }

  // No plan of these takes less than the plan found, or than is claimed where they are listed.
  Status prove(StepConfigurations of, double least_s, const MeshTimes& times) {
    least_s = std::max(least_s, wide_bound(model_, cluster_, options_, of, times));
    if (least_s >= certificate_.step_s * (1 - kRounding)) {
      check_.by_closed_form += of.count();
      return {};
    }
    if (of.count() > 1) {
      if (none_below(model_, cluster_, options_, of, times, limit_, certificate_.step_s)) {
        check_.by_closed_form += of.count();
        return {};
      }
      StepConfigurations more = of;
      of.chunks_to = (of.plan.virtual_stages + of.chunks_to) / 2;
      more.plan.virtual_stages = of.chunks_to + 1;
      TSR_RETURN_IF_ERROR(prove(of, least_s, times));
      return prove(more, least_s, times);
    }
    const std::string words = configuration_of(of.plan);
    const auto entry = listed_.find(words);
    const bool listed = entry != listed_.end();
    if (listed) seen_.emplace(words, true);
    const double claim = listed ? std::min(entry->second->bound_s, certificate_.step_s) : certificate_.step_s;
    const SolvedStep solved = solve_wide(model_, cluster_, options_, of.plan, times, limit_,
                                         listed ? entry->second->step_s : certificate_.step_s);
    if (solved.too_large) {
      ++check_.too_large;
    } else if (std::max(solved.bound_s, least_s) >= claim * (1 - kRounding)) {
      ++check_.by_cuts;
    } else {
      return wrong(
          listed ? format("'{}' claims that none of its plans is below {} s; {} s is what can be proved",
                          words, claim, solved.bound_s)
                 : format("'{}' is missing: none of its plans is proved to take the {} s of the plan "
                          "found, only {} s",
                          words, claim, solved.bound_s));
    }
    // Weights on the host, a quarter more, as configurations of their own.
    if (solved.wants_memory && options_.offload && of.plan.offload_params < 4 &&
        cluster_.host_link.bytes_per_s > 0) {
      ++of.plan.offload_params, ++check_.configurations;
      return prove(of, least_s, times);
    }
    return {};
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  const StepCertificate& certificate_;
  const int64_t limit_;
  ForeignPlan plan_;
  std::map<std::string, const CertificateEntry*> listed_;
  std::map<std::string, bool> seen_;
  CertificateCheck check_;
};

}  // namespace

StepCertificate wide_certificate_of(const StepSearchResult& result) {
  StepCertificate certificate;
  certificate.plan = to_text(result.best.plan);
  certificate.stages = result.best.stages;
  certificate.step_s = result.best.time.step_s;
  certificate.bound_s = result.bound_s;
  certificate.gap = result.gap;
  for (const SolvedConfiguration& closed : result.open)
    if (closed.bound_s < certificate.step_s * kListed)
      certificate.configurations.push_back({configuration_of(closed.plan), closed.bound_s, closed.step_s});
  return certificate;
}

Result<CertificateCheck> check_wide_certificate(const TransformerShape& model, const Cluster& cluster,
                                                const StepSearchOptions& options,
                                                const StepCertificate& certificate) {
  if (cluster.devices.empty() || options.global_batch < 1 || !(certificate.step_s > 0) ||
      !std::isfinite(certificate.step_s))
    return wrong(format("a cluster of {} devices, a batch of {} and a step of {} s", cluster.devices.size(),
                        options.global_batch, certificate.step_s));
  TSR_RETURN_IF_ERROR(check_one_kind(cluster));
  return Check(model, cluster, options, certificate).run();
}

}  // namespace tessera
