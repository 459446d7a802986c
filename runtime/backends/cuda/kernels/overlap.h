// Overlap: a stream's record that lets a kernel begin while its predecessor ends (kernels/overlap.cuh).
#pragma once

namespace tessera::cuda {

// Whether the kernel to be launched may overlap with its predecessor; and, once it is launched, the next one
// with it.
struct Overlap {
  bool with_previous = false, with_next = false;
};

// Whether `kernel` was compiled with the waiting instructions for the current device: a newer device may run
// code for an older one, which lacks them.
bool can_overlap(const void* kernel);

}  // namespace tessera::cuda
