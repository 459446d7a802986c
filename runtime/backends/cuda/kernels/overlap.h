// What a stream remembers so that a kernel may begin while the one before it ends (kernels/overlap.cuh).
#pragma once

namespace tessera::cuda {

// Whether the kernel to be launched may overlap with what was issued before it; and, once it is, the next one
// with it.
struct Overlap {
  bool with_previous = false, with_next = false;
};

// Whether `kernel` waits as it was compiled for the current device: a newer one may run what was compiled for
// an older, without the instructions.
bool can_overlap(const void* kernel);

}  // namespace tessera::cuda
