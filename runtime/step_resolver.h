// StepResolver: looks up what the instructions of one rank name (addresses, kernels, files), so that carrying
// one out looks up nothing.
#pragma once

#include <vector>

#include "runtime/rank_memory.h"
#include "runtime/rank_stream.h"

namespace tessera {

// As it crosses the table; points into `what`.
tsr_abi_collective described(const CollectiveInst& what, int32_t members);

class StepResolver {
 public:
  // Everything outlives it; it outlives the steps.
  StepResolver(const tsr_backend_api& api, const RankProgram& program,
               const std::vector<tsr_abi_kernel*>& kernels, const RankMemory& memory);
  StepResolver(const StepResolver&) = delete;
  StepResolver& operator=(const StepResolver&) = delete;

  // What the instruction, one of the program's and each once, is to do; nothing of streams and waits.
  // kUnsupported for a copy that the backend has no way for.
  Status resolve(const Instruction& instruction, Step& step);

 private:
  Status resolve_copy(const CopyInst& copy, Step& step) const;

  const tsr_backend_api& api_;
  const RankProgram& program_;
  const std::vector<tsr_abi_kernel*>& kernels_;
  const RankMemory& memory_;
  std::vector<void*> pointers_;  // operand lists of all kernels, which steps point into; never grows
};

}  // namespace tessera
