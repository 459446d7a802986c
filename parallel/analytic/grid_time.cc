#include "parallel/analytic/grid_time.h"

#include <algorithm>

namespace tessera {

namespace {

// The compact piece of the grid that one node holds: its devices' factors go to the axes in turn.
std::array<int32_t, 3> node_piece(const std::array<int32_t, 3>& grid, int32_t node_devices) {
  std::array<int32_t, 3> piece = {1, 1, 1};
  int32_t left = node_devices > 0 ? node_devices : grid[0] * grid[1] * grid[2];
  size_t axis = 1;
  for (int32_t factor = 2; left > 1 && factor <= left;) {
    if (left % factor != 0) {
      ++factor;
      continue;
    }
    bool placed = false;
    for (size_t tries = 0; tries < 3 && !placed; ++tries, axis = (axis + 2) % 3) {
      if (grid[axis] % (piece[axis] * factor) != 0) continue;
      piece[axis] *= factor;
      placed = true;
    }
    left /= factor;
  }
  return piece;
}

}  // namespace

GridProducts::GridProducts(const Cluster& cluster, const ForeignPlan& plan)
    : cluster_(cluster),
      plan_(plan),
      element_bytes_(static_cast<double>(info(plan.compute_dtype).block_bytes) /
                     info(plan.compute_dtype).block_elements),
      x_(plan.grid[0]),
      y_(plan.grid[1]),
      z_(plan.grid[2]),
      steps_(plan.form == TensorForm::k3d ? 1 : std::max(x_, y_)) {
  const std::array<int32_t, 3> piece = node_piece(plan.grid, cluster.node_devices);
  for (size_t axis = 0; axis < 3; ++axis) along_[axis] = {plan.grid[axis], piece[axis], false};
}

double GridProducts::broadcasts_s(int axis, double blocks, double bytes) const {
  const RankGroup group = along_[static_cast<size_t>(axis)];
  if (group.members < 2) return 0;
  const double members = group.members;
  return blocks * gather_seconds(cluster_, group, bytes * members / (members - 1));
}

GridProducts::Moves GridProducts::moves(double m, double n, double k) const {
  const double e = element_bytes_;
  Moves moves;
  if (plan_.form == TensorForm::k3d) {
    moves.a_s = gather_seconds(cluster_, along_[1], m * k * e / (x_ * z_));
    moves.b_s = gather_seconds(cluster_, along_[0], k * n * e / (z_ * y_));
    moves.c_s = gather_seconds(cluster_, along_[2], m * n * e / (x_ * y_));
    moves.kernels = 3;
  } else {
    moves.a_s = broadcasts_s(1, y_, m / z_ * k * e / (x_ * y_));
    moves.b_s = broadcasts_s(0, x_, k * n * e / (x_ * y_));
    moves.kernels = x_ + y_;
  }
  return moves;
}

double GridProducts::product_s(double m, double n, double k) const {
  return product_seconds(cluster_.kinds[0], plan_.compute_dtype, m, n, k);
}

void GridProducts::forward(Pass& pass, double m, double n, double k) const {
  const Moves moved = moves(m, n, k);
  pass.collective_s += moved.a_s + moved.b_s + moved.c_s;
  if (plan_.form == TensorForm::k3d) {
    pass.compute_s += product_s(m / x_, n / y_, k / z_);
  } else {
    pass.compute_s += steps_ * product_s(m / (x_ * z_), n / y_, k / steps_);
  }
  pass.kernels += moved.kernels + steps_;
}

void GridProducts::backward(Pass& pass, Pass& weight, double m, double n, double k) const {
  const Moves moved = moves(m, n, k);
  // dA wants B again and reduces as A moved, dB the other way round; dC moves where C was summed, for both.
  pass.collective_s += moved.b_s + moved.a_s + moved.c_s;
  weight.collective_s += moved.a_s + moved.b_s;
  if (plan_.form == TensorForm::k3d) {
    pass.compute_s += product_s(m / x_, k / z_, n / y_);
    weight.compute_s += product_s(k / z_, n / y_, m / x_);
  } else {
    pass.compute_s += steps_ * product_s(m / (x_ * z_), k / steps_, n / y_);
    weight.compute_s += steps_ * product_s(k / steps_, n / y_, m / (x_ * z_));
    if (plan_.form == TensorForm::k25d)
      weight.collective_s += all_reduce_seconds(cluster_, along_[2], k * n * element_bytes_ / (x_ * y_));
  }
  pass.kernels += moved.kernels + steps_;
  weight.kernels += moved.kernels + steps_;
}

void GridProducts::statistics(Pass& pass, double tokens) const {
  if (along_[1].members < 2) return;
  pass.collective_s += all_reduce_seconds(cluster_, along_[1], 2 * tokens / x_ * 4);
  pass.kernels += 1;
}

}  // namespace tessera
