#include "engine/planning/estimated_plan.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/composition/staged_plan.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/pricing/absent_catalog.h"
#include "parallel/pricing/device_limit.h"
#include "parallel/pricing/reserved_memory.h"

namespace tessera {

namespace {

// The plan that words name which say how all devices are used; of micro-batches of one sequence where they say none.
Result<std::optional<StrategySpec>> given_plan(const std::string& parallel, int64_t devices) {
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(parallel));
  if (pins.sp && pins.spec.tp == 1 && (pins.tp || devices == 1))
    return Status(StatusCode::kInvalidArgument,
                  "sp splits the sequence over tp, and tp is 1; use tp=2 or more");
  const bool says_mesh = pins.tp || pins.dp || pins.pp || pins.cp || pins.ep;
  if (!says_mesh || pins.spec.offload.automatic || pins.spec.devices() != devices)
    return std::optional<StrategySpec>();
  StrategySpec spec = pins.spec;
  if (spec.micro_batch == 0) spec.micro_batch = 1;
  return std::optional(spec);
}

// The least limit L of a device with L - L / 100 - reserved >= bytes.
int64_t limit_for(int64_t bytes, int64_t reserved) {
  if (bytes > INT64_MAX / 200) return INT64_MAX;
  int64_t limit = (bytes + reserved) + (bytes + reserved) / 100;
  while (limit - limit / 100 - reserved < bytes) ++limit;
  return limit;
}

class PlanEstimator {
 public:
  // `packing`: bytes that plans of earlier searches took beyond what they were composed to.
  PlanEstimator(const EstimatedModel& model, const EstimateRequest& request, double within, int64_t packing)
      : model_(model), request_(request), within_(within), packing_(packing) {}

  Result<EstimatedPlan> on(const Cluster& cluster) const {
    TSR_RETURN_IF_ERROR(check_products(cluster.kinds[0]));
    EstimatedPlan it;
    it.cluster = cluster;
    it.reserved_bytes = reserved_bytes(cluster.kinds[0]);
    it.limit = device_limit(cluster, request_.memory_limit);
    const AbsentCatalog catalog(cluster.kinds[0]);
    const int64_t limit = composed_limit(cluster, request_.memory_limit) - packing_;
    TSR_ASSIGN_OR_RETURN(const std::optional<StrategySpec> given,
                         given_plan(request_.parallel, static_cast<int64_t>(cluster.devices.size())));
    if (given) {
      PlanComposer composer(model_.composed(), it.cluster, catalog, request_.batch, limit);
      TSR_ASSIGN_OR_RETURN(it.plan, composer.compose(*given));
      return it;
    }
    const ComposedSearchOptions options{
        .parallel = request_.parallel,
        .global_batch = request_.batch,
        .tokens = model_.tokens(),
        .memory_limit = limit,
        .within = within_,
        .limit_for = [reserved = it.reserved_bytes](int64_t bytes) { return limit_for(bytes, reserved); }};
    TSR_ASSIGN_OR_RETURN(it.search, search_composed(model_.composed(), it.cluster, catalog, options));
    it.plan = it.search->plan;
    return it;
  }

  Status check_products(const DeviceKind& kind) const {
    if (!model_.multiplies_8_bits() ||
        std::ranges::find(kind.matrix_rates, DType::kE4M3, &MatrixRate::dtype) != kind.matrix_rates.end())
      return {};
    return Status(StatusCode::kUnsupported,
                  format("precision fp8: devices of kind '{}' list no rate of products of 8 bits; name bf16, "
                         "or in a cluster file add the "
                         "rate to its matrix_rates, with dtype e4m3",
                         kind.name));
  }

  // The best of all choices of kinds, the others idle.
  Result<EstimatedPlan> on(const Fleet& fleet) const {
    TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, model_.precision()));
    std::optional<EstimatedPlan> best;
    std::vector<KindChoice> kinds;
    Status failure;
    for (const ClusterPart& part : parts.parts) {
      std::vector<size_t> idle;
      for (size_t g = 0; g < parts.groups.size(); ++g)
        if (std::ranges::find(part.groups, g) == part.groups.end()) idle.push_back(g);
      KindChoice choice{groups_text(parts, part.groups), groups_text(parts, idle), std::nullopt};
      Result<EstimatedPlan> found = on(part.cluster);
      if (!found.ok()) {
        if (failure.ok()) failure = found.status();
        kinds.push_back(std::move(choice));
        continue;
      }
      choice.step_s = found->plan.time.step_s;
      const auto rank = [](const EstimatedPlan& it) { return std::pair(!it.fits(), it.plan.time.step_s); };
      const bool is_best = !best || rank(*found) < rank(*best);
      kinds.insert(is_best ? kinds.begin() : kinds.end(), std::move(choice));
      if (is_best) best = *std::move(found);
    }
    if (!best) return failure;
    if (parts.groups.size() > 1) best->kinds = std::move(kinds);
    return *std::move(best);
  }

 private:
  const EstimatedModel& model_;
  const EstimateRequest& request_;
  const double within_;
  const int64_t packing_;
};

// Blocks times micro-batches of all devices that are lowered.
int64_t lowered_passes(const ComposedPlan& plan) {
  constexpr int64_t kPlaces = 4;
  int64_t most = 0;
  for (int32_t d = 0; d < plan.spec.pp; ++d) most = std::max(most, plan.blocks_on(d).count);
  return std::min<int64_t>(plan.spec.pp, kPlaces) * most * filling_micro_batches(plan.stages.shape);
}

// The first device, the last, the fullest and the slowest, with as many micro-batches as fill the pipeline.
Status lower(const EstimatedModel& model, EstimatedPlan& it) {
  TSR_ASSIGN_OR_RETURN(const Graph step, model.whole_step());
  TSR_ASSIGN_OR_RETURN(const Graph bound, step.bind_partly(model.composed().symbols));
  const StrategySpec& spec = it.plan.spec;
  ComposedStages stages = it.plan.stages;
  stages.shape.micro_batches = filling_micro_batches(stages.shape);
  TSR_ASSIGN_OR_RETURN(Plan plan, staged_plan(bound, spec, stages,
                                              spec.micro_batch * spec.data() * stages.shape.micro_batches));
  plan.symbols = model.composed().symbols;
  const auto fullest =
      std::ranges::max_element(it.plan.devices, {}, &DeviceBytes::total) - it.plan.devices.begin();
  std::vector<int32_t> devices = {0, static_cast<int32_t>(fullest), it.plan.time.slowest, spec.pp - 1};
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> arenas,
                       lowered_arenas(step, plan, AbsentCatalog(it.cluster.kinds[0]), devices));
  for (size_t i = 0; i < devices.size(); ++i)
    it.lowered.push_back({devices[i], arenas[i] + it.reserved_bytes});
  return {};
}

}  // namespace

int64_t composed_limit(const Cluster& cluster, int64_t memory_limit) {
  const int64_t limit = device_limit(cluster, memory_limit);
  return limit == kNoLimit ? limit : limit - limit / 100 - reserved_bytes(cluster.kinds[0]);
}

Result<std::vector<StepProfile>> plan_profiles(const EstimatedModel& model, const EstimateRequest& request,
                                               const EstimatedPlan& it) {
  const AbsentCatalog catalog(it.cluster.kinds[0]);
  std::vector<StepProfile> profiles;
  for (const RecomputeForm form : {RecomputeForm::kNone, RecomputeForm::kFull}) {
    if (form == RecomputeForm::kFull && it.plan.spec.recompute == RecomputeForm::kNone) continue;
    StrategySpec spec = it.plan.spec;
    spec.recompute = form;
    TSR_ASSIGN_OR_RETURN(StepProfile profile,
                         profile_strategy(model.composed().few, spec, request.batch, model.composed().symbols,
                                          it.cluster, catalog, true));
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

std::vector<int64_t> EstimatedPlan::bytes() const {
  std::vector<int64_t> all;
  for (const DeviceBytes& device : plan.devices) all.push_back(device.total() + reserved_bytes);
  for (const LoweredDevice& device : lowered) all[static_cast<size_t>(device.device)] = device.bytes;
  return all;
}

bool EstimatedPlan::fits() const {
  const std::vector<int64_t> all = bytes();
  for (size_t d = 0; d < all.size(); ++d) {
    const bool is_exact =
        std::ranges::find(lowered, static_cast<int32_t>(d), &LoweredDevice::device) != lowered.end();
    if (all[d] > (is_exact ? limit : limit - limit / 100)) return false;
  }
  return true;
}

Result<EstimatedPlan> estimate_plan(const EstimatedModel& model, const EstimateRequest& request,
                                    const Fleet& fleet, Verify verify, double within) {
  // Blocks times micro-batches that are lowered in less than a second.
  constexpr int64_t kQuick = 800;
  constexpr int kMostSearches = 4;
  EstimatedPlan it;
  for (int64_t search = 0, packing = 0; search < kMostSearches; ++search) {
    TSR_ASSIGN_OR_RETURN(it, PlanEstimator(model, request, within, packing).on(fleet));
    const bool is_quick = verify == Verify::kAuto && lowered_passes(it.plan) <= kQuick && it.fits();
    if (verify == Verify::kOn || is_quick) TSR_RETURN_IF_ERROR(lower(model, it));
    if (!it.search || it.fits()) break;
    packing +=
        std::max<int64_t>(1, std::ranges::max(it.bytes()) -
                                 it.limit);  // more than a hundredth: searched again with as much left free
  }
  if (verify == Verify::kOn && !it.fits())
    return Status(
        StatusCode::kOutOfMemory,
        format("verify: '{}' needs {} on its fullest device, the limit is {}", to_text(it.plan.spec),
               bytes_text(std::ranges::max(it.bytes())), bytes_text(it.limit)));
  return it;
}

}  // namespace tessera
