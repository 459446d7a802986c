// Arranged weights: parameters kept in the order in which the backend's fastest kernels read them, of the same
// bytes. For sessions whose read-only parameters are shared (shared_weights.h), which are arranged once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

// Kernels that read a read-only parameter take their variant's ":interleaved" form where the backend has it for every
// instruction that reads that parameter. The program then runs with arranged weights alone.
void take_arranged_variants(Program& program, DeviceSet& devices);

// An operand that a kernel reads arranged.
struct ArrangedOperand {
  const KernelDesc* kernel = nullptr;  // null: in rows
  int32_t operand = 0;
};
// By slot. Points into the program.
std::vector<ArrangedOperand> find_arranged(const RankProgram& rank);
// The operand at `in`, in rows, as its kernel reads it.
Status arrange(DeviceSet& devices, const ArrangedOperand& operand, const std::byte* in, std::byte* out);

}  // namespace tessera
