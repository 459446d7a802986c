// Price grids: shapes at which `tessera calibrate` measures
// ops priced by shape: matmuls, expert matmuls, attention.
#pragma once

#include <string>
#include <vector>

#include "engine/program/fitted_prices.h"
#include "engine/program/probe_program.h"
#include "graph/device_profile.h"

namespace tessera {

// PriceGrid: one op at every point of a price table whose seconds are not measured yet.
struct PriceGrid {
  std::string name;   // for people
  double weight = 1;  // share of the calibration time
  PriceTable table;
  std::vector<Probe> probes = {};  // row-major
  std::vector<std::vector<MeasuredPoint>> passes = {};
};

// `is_coarse`: few shapes, for short calibrations. `has_tensor_cores`: 16-bit matmuls
// get as many shapes as f32; TF32 and 8-bit matmuls have tables of their own.
std::vector<PriceGrid> price_grids(bool is_coarse, bool has_tensor_cores);

}  // namespace tessera
