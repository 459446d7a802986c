// Products of the tensor-parallel forms beyond 1d, C[M, N] = A[M, K] B[K, N] on a grid:
//   2d XxY      SUMMA: Y broadcasts of blocks of A along rows, X of blocks of B along columns, a product each
//   2.5d QxQxD  as 2d on each of D layers, which share M; dB is summed over layers
//   3d LxLxL    A and B are gathered, C is scattered as it is summed
// Backward, what moved forward moves again, and its gradient is reduced the same way (nothing is kept). Nodes
// hold compact pieces of the grid. Broadcasts are pipelined: every link carries the whole block.
#pragma once

#include <array>

#include "parallel/analytic/block_time.h"

namespace tessera {

class GridProducts {
 public:
  GridProducts(const Cluster& cluster, const ForeignPlan& plan);

  // Extents are of the whole product. `weight` gets what only dB needs, `pass` the rest.
  void forward(Pass& pass, double m, double n, double k) const;
  void backward(Pass& pass, Pass& weight, double m, double n, double k) const;
  // Sums that a norm of `tokens` rows takes over ranks that share them.
  void statistics(Pass& pass, double tokens) const;

 private:
  struct Moves {
    double a_s = 0, b_s = 0, c_s = 0;  // all blocks of one operand, one way
    double kernels = 0;
  };
  Moves moves(double m, double n, double k) const;
  // The product of one rank in `steps` slices of the dim that is contracted or, backward, was.
  double product_s(double m, double n, double k) const;
  double broadcasts_s(int axis, double blocks, double bytes) const;

  const Cluster& cluster_;
  const ForeignPlan& plan_;
  std::array<RankGroup, 3> along_;  // ranks that differ in one coordinate
  double element_bytes_, x_, y_, z_, steps_;
};

}  // namespace tessera
