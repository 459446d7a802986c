#include "parallel/planner/search_roots.h"

#include <string_view>

#include "graph/base/text.h"

namespace tessera {

namespace {

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

}  // namespace

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

}  // namespace tessera
