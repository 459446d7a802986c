// Ceilings: the current speed of this machine, the reference of benchmarks.
#pragma once

#include <cstdint>

#include "runtime/backend_abi.h"

namespace tessera::bench {

double now_s();

// Time this thread has had on a core: concurrent work disturbs the caches, but is not counted.
double thread_s();

// Multiply-adds from registers alone, one thread.
double fma_flops_per_s();

// a = b + s * c over arrays far larger than the caches, 12 bytes an element counted, `threads` threads.
double triad_bytes_per_s(int threads);

// Reads of an array far larger than the caches, `threads` threads.
double read_bytes_per_s(int threads);

// Multiply-adds of bytes from registers alone, one thread: with sums of 16 bits (codes of up to six bits), and of
// 16-bit numbers with sums of 32 bits.
double byte_macs_per_s();
double word_macs_per_s();
// Rate of byte products with sums of 32 bits (VNNI); 0 where the CPU does not have it.
double dot_macs_per_s();

// 2048^3 f32 product on `threads` threads: our packed kernel.
double product_flops_per_s(int threads);

// A host whose parallel_for runs on `threads` threads, made for the call. `threads` is at most 64.
tsr_host_api host_with_threads(int threads);

}  // namespace tessera::bench
