#include "parallel/strategy/strategy_axes.h"

namespace tessera {

DeviceMesh make_mesh(const StrategySpec& spec, StrategyAxes& axes, const SharedHeads& shared) {
  DeviceMesh mesh;
  const auto add = [&](std::string name, int32_t size) {
    mesh.axes.push_back({std::move(name), size});
    return static_cast<AxisId>(mesh.axes.size() - 1);
  };
  const bool grouped = spec.zero > 0 && spec.zero_group > 0 && spec.zero_group < spec.dp;
  if (grouped) axes.batch.push_back(add("dp_groups", spec.dp / spec.zero_group));
  if (spec.dp > 1) {
    axes.batch.push_back(add("dp", grouped ? spec.zero_group : spec.dp));
    if (spec.zero > 0) axes.zero.push_back(axes.batch.back());
    if (spec.owt) axes.wide = axes.batch.back();
  }
  if (spec.ep > 1) axes.experts = add("ep", spec.ep);
  if (spec.cp > 1) axes.context = add("cp", spec.cp);
  if (spec.zero > 0 && !grouped) {
    if (axes.experts) axes.zero.push_back(*axes.experts);
    if (axes.context) axes.zero.push_back(*axes.context);
  }
  axes.grid = spec.tp > 1 && spec.form != TensorForm::k1d;
  if (axes.grid) {
    const AxisId x = add("x", spec.grid[0]), y = add("y", spec.grid[1]);
    axes.batch.push_back(x);
    axes.spread = {x};
    axes.features = {y};
    if (spec.form == TensorForm::k25d) axes.batch.push_back(add("z", spec.grid[2]));
    if (spec.form == TensorForm::k3d) axes.features.push_back(add("z", spec.grid[2]));
  } else if (spec.tp > 1) {
    const int64_t each = shared.heads > 1 && spec.tp % shared.heads == 0 ? spec.tp / shared.heads : 1;
    const bool split_groups = each > 1 && each <= shared.queries;
    axes.features = {add("tp", split_groups ? static_cast<int32_t>(shared.heads) : spec.tp)};
    if (split_groups) axes.group = add("tp_group", static_cast<int32_t>(each));
  }
  // Last in the batch: the part that moves to experts must be the innermost split.
  if (axes.experts) axes.batch.push_back(*axes.experts);
  for (int32_t rank = 0; rank < spec.devices() / spec.pp; ++rank) mesh.devices.push_back(rank);
  return mesh;
}

}  // namespace tessera
