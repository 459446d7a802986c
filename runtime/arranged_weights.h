// Arranged weights: parameters in the order in which the backend's fastest kernels read them, with the
// same bytes. For sessions that share read-only parameters (shared_weights.h), which are arranged once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

// Switches kernels that read a read-only parameter to their ":interleaved" variant, if the backend
// has it for all readers of that parameter. The program then runs only with arranged weights.
void take_arranged_variants(Program& program, DeviceSet& devices);

// ArrangedOperand: an operand in arranged order.
struct ArrangedOperand {
  const KernelDesc* kernel = nullptr;  // null: in row order
  int32_t operand = 0;
};
// By slot; points into the program.
std::vector<ArrangedOperand> find_arranged(const RankProgram& rank);
// Arranges the operand at `in`, in row order, for its kernel.
Status arrange(DeviceSet& devices, const ArrangedOperand& operand, const std::byte* in, std::byte* out);

}  // namespace tessera
