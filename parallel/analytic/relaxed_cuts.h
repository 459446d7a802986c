// What the devices of a configuration can hold and do, block by block as straight lines: how many blocks each
// has room for in a step of so many seconds, and what memory makes it recompute, in closed form. Cuts that
// this does not rule out are for analytic/wide_cuts to find.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/analytic/wide_cuts.h"

namespace tessera {

class RelaxedCuts {
 public:
  // Of `cuts` as they are, under `limit` bytes a device; keeps no reference. `any_schedule`: of what the
  // plan's schedule adds nothing counts.
  RelaxedCuts(const TransformerShape& model, const WideCuts& cuts, int64_t limit, bool any_schedule = false);

  // Whether no cut has a pipeline of less than `step_s`. Says yes only where that is proved.
  bool none_below(double step_s) const;

 private:
  // Devices that differ in nothing.
  struct Devices {
    int64_t count = 0;
    double free = 0;       // blocks that it holds with nothing saved, as a fraction
    double most = 0;       // that it holds with everything saved
    double over = 0;       // seconds that every block beyond `free` takes more, of saving
    double begin_s = 0;    // what its first chunk does beside blocks
    double ends_s = 0;     // what it does beside blocks, of a micro-batch
    double forward_s = 0;  // of which forward
    double way_s = 0;      // ends_s without gradients of weights
    double ahead = 0;      // forward passes that it has done before its first backward pass, less one
  };

  static double within(const Devices& device, double seconds, double each, double more);
  double most_blocks(const Devices& device, double step_s, double work_s, double before_s) const;
  bool too_few_between_chunks(double step_s, double most) const;
  bool too_few_after_ways(double step_s) const;
  double forced_seconds(const std::vector<double>& most) const;

  bool drains_ = false;  // every stage waits for the way there and back once, as 1f1b and gpipe do
  bool splits_ = false;  // gradients of weights wait, as in zb-h1 and zb-h2
  double chunks_ = 1;    // of a device, whose first come one after another: the most that there may be
  double m_ = 1, blocks_ = 0, least_ = 1;
  double work_s_ = 0;                   // of all stages, and the way between them
  double block_s_ = 0, forward_s_ = 0;  // of one block as it is fastest; of which forward
  double way_s_ = 0;                    // and without gradients of weights
  std::vector<Devices> devices_;        // those that hold most micro-batches first
};

}  // namespace tessera
