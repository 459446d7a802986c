// Price grids: the shapes at which `tessera calibrate` measures ops that are priced by shape: matmuls, expert
// matmuls, attention.
#pragma once

#include <string>
#include <vector>

#include "engine/program/fitted_prices.h"
#include "engine/program/probe_program.h"
#include "graph/device_profile.h"

namespace tessera {

// PriceGrid: one op at every point of a price table, which has no seconds yet.
struct PriceGrid {
  std::string name;   // for people
  double weight = 1;  // of the time
  PriceTable table;
  std::vector<Probe> probes = {};  // row-major
  std::vector<std::vector<MeasuredPoint>> passes = {};
};

// `is_coarse`: a few shapes only, for short calibrations. `has_tensor_cores`: 16-bit matmuls are measured at
// as many shapes as f32, since models compute in them; TF32 and 8-bit matmuls have tables of their own.
std::vector<PriceGrid> price_grids(bool is_coarse, bool has_tensor_cores);

}  // namespace tessera
