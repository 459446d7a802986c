// The shapes that `tessera calibrate` measures ops at which are priced by shape: products, those of experts,
// attention.
#pragma once

#include <string>
#include <vector>

#include "capi/engine/fitted_prices.h"
#include "capi/engine/probe_program.h"
#include "graph/device_profile.h"

namespace tessera {

// One op at every point of a price table, which has no seconds yet.
struct PriceGrid {
  std::string name;   // for people
  double weight = 1;  // of the time
  PriceTable table;
  std::vector<Probe> probes = {};  // row-major
  std::vector<std::vector<MeasuredPoint>> passes = {};
};

// Coarse: where there is no time for more than a few shapes. Tensor cores: products of 16 bits are
// measured at as many shapes as those of f32, since that is what is computed in, and products that may
// multiply in TF32, and those of 8 bits, have tables of their own.
std::vector<PriceGrid> price_grids(bool is_coarse, bool has_tensor_cores);

}  // namespace tessera
