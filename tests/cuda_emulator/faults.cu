#include <cuda_runtime.h>

#include <cstdlib>

#include "runtime/backends/cuda/kernels/mma.cuh"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "tests/cuda_emulator/faults.h"

namespace faults {

namespace {

using tessera::cuda::copy_async;
using tessera::cuda::copy_async_wait;

void* memory() {
  void* at = nullptr;
  (void)cudaMalloc(&at, 4096);
  return at;
}
template <class T>
T* cleared() {
  void* at = memory();
  (void)cudaMemset(at, 0, 4096);
  return static_cast<T*>(at);
}
void finish() { (void)cudaDeviceSynchronize(); }

__global__ void barrier_kernel(bool planted, int* out) {
  __shared__ int value[64];
  value[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!planted) __syncthreads();
  out[threadIdx.x] = value[63 - threadIdx.x];
}
void without_barrier(bool planted) {
  barrier_kernel<<<1, 64>>>(planted, cleared<int>());
  finish();
}

__global__ void reuse_kernel(bool planted, int* out) {
  __shared__ int value[64];
  for (int round = 0; round < 2; ++round) {
    value[threadIdx.x] = round;
    __syncthreads();
    out[threadIdx.x] += value[63 - threadIdx.x];
    if (!planted) __syncthreads();
  }
}
void reused_too_early(bool planted) {
  reuse_kernel<<<1, 64>>>(planted, cleared<int>());
  finish();
}

__global__ void shuffle_kernel(bool planted, int* out) {
  out[threadIdx.x] = 1;
  int value = __shfl_xor_sync(0xffffffffu, 1, 1);
  if (!planted) __syncwarp();
  value += out[31 - threadIdx.x];
  out[32 + threadIdx.x] = value;
}
void ordered_by_a_shuffle(bool planted) {
  shuffle_kernel<<<1, 32>>>(planted, cleared<int>());
  finish();
}

__global__ void blocks_kernel(bool planted, int* out) {
  if (threadIdx.x == 0) out[planted ? 0 : blockIdx.x] = 1;
}
void blocks_write_one_place(bool planted) {
  blocks_kernel<<<2, 32>>>(planted, cleared<int>());
  finish();
}

__global__ void neighbour_kernel(bool planted, const int* in, int* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = planted ? out[(i + 32) % 64] : in[(i + 32) % 64];
}
void a_block_reads_anothers_result(bool planted) {
  neighbour_kernel<<<2, 32>>>(planted, cleared<int>(), cleared<int>());
  finish();
}

__global__ void count_kernel(bool planted, int* out) {
  if (planted)
    out[0] += 1;
  else
    atomicAdd(out, 1);
}
void counted_without_atomics(bool planted) {
  count_kernel<<<2, 32>>>(planted, cleared<int>());
  finish();
}

__global__ void unwritten_kernel(bool planted, int* out) {
  __shared__ int value[33];
  value[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = value[threadIdx.x + (planted ? 1 : 0)];
}
void read_before_it_is_written(bool planted) {
  unwritten_kernel<<<1, 32>>>(planted, cleared<int>());
  finish();
}

__global__ void vector_kernel(const float* in, float4* out) {
  out[threadIdx.x] = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x);
}
void vectors_off_their_alignment(bool planted) {
  vector_kernel<<<1, 32>>>(cleared<float>() + (planted ? 1 : 0), cleared<float4>());
  finish();
}

__global__ void wide_kernel(bool planted, float4* out) {
  __shared__ float loose[4];
  __shared__ __align__(16) float aligned[4];
  float* four = planted ? loose : aligned;
  if (threadIdx.x < 4) four[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = *reinterpret_cast<float4*>(four);
}
void shared_arrays_read_wider_than_they_lie(bool planted) {
  wide_kernel<<<1, 32>>>(planted, cleared<float4>());
  finish();
}

__global__ void matrix_kernel(bool planted, uint32_t* out) {
  __shared__ __align__(16) uint16_t tile[8 * 8 + 8];
  for (int i = static_cast<int>(threadIdx.x); i < 72; i += 32) tile[i] = 0;
  __syncwarp();
  uint32_t got[4];
  tessera::cuda::load_matrices(got, tile + threadIdx.x % 8 * 8 + (planted ? 4 : 0));
  out[threadIdx.x] = got[0];
}
void rows_of_matrices_off_16_bytes(bool planted) {
  matrix_kernel<<<1, 32>>>(planted, cleared<uint32_t>());
  finish();
}

__global__ void copy_kernel(bool planted, const int4* in, int4* out) {
  __shared__ int4 tile[64];
  copy_async(tile + threadIdx.x, in + threadIdx.x, true);
  if (!planted) copy_async_wait();
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
  copy_async_wait();
}
void read_before_it_has_arrived(bool planted) {
  copy_kernel<<<1, 64>>>(planted, cleared<int4>(), cleared<int4>());
  finish();
}

__global__ void overwrite_kernel(bool planted, const int4* in, int4* out) {
  __shared__ int4 tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
  if (!planted) __syncthreads();
  copy_async(tile + threadIdx.x, in + threadIdx.x, true);
  copy_async_wait();
}
void copied_over_what_is_still_read(bool planted) {
  overwrite_kernel<<<1, 64>>>(planted, cleared<int4>(), cleared<int4>());
  finish();
}

__global__ void __launch_bounds__(128) bounded_kernel(int* out) { out[threadIdx.x] = 1; }
void more_threads_than_bounds(bool planted) {
  bounded_kernel<<<1, planted ? 256 : 128>>>(cleared<int>());
  finish();
}

__global__ void unbounded_kernel(int* out) { out[threadIdx.x] = 1; }
void many_threads_without_bounds(bool planted) {
  unbounded_kernel<<<1, planted ? 512 : 256>>>(cleared<int>());
  finish();
}

__global__ void early_kernel(bool planted, int* out) {
  if (planted) out[threadIdx.x] = 1;
  tessera::cuda::wait_for_previous();
  out[threadIdx.x] = 2;
}
__global__ void impatient_kernel(bool planted, int* out) {
  if (planted && threadIdx.x == 5) return;
  tessera::cuda::wait_for_previous();
  out[threadIdx.x] = 2;
}
void overlapping(void (*kernel)(bool, int*), bool planted, bool after_a_kernel = true) {
  int* const out = cleared<int>();
  tessera::cuda::Overlap overlap;
  tessera::cuda::LaunchArgs args{nullptr, nullptr, nullptr, nullptr, &overlap};
  tessera::cuda::launch_overlapping(kernel, 1, 32, 0, args, false, out);
  if (!after_a_kernel) (void)cudaMemsetAsync(out, 0, 128, nullptr);
  tessera::cuda::launch_overlapping(kernel, 1, 32, 0, args, planted, out);
  finish();
}
void written_before_it_waited(bool planted) { overlapping(early_kernel, planted); }
void ended_without_waiting(bool planted) { overlapping(impatient_kernel, planted); }
void overlapping_with_a_fill(bool planted) { overlapping(early_kernel, false, !planted); }

void after_a_kernel_with_another_share_of_shared_memory(bool planted) {
  int* const out = cleared<int>();
  tessera::cuda::Overlap overlap;
  const tessera::cuda::LaunchArgs args{nullptr, nullptr, nullptr, nullptr, &overlap};
  tessera::cuda::launch_overlapping(early_kernel, 1, 32, 0, args, false, out);
  if (planted) (void)cudaFuncSetAttribute(early_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 0);
  tessera::cuda::launch_overlapping(early_kernel, 1, 32, 0, args, false, out);
  finish();
}

// 8 KiB of its own in addition to the launch's.
__global__ void crowded_kernel(int* out) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ int value[2048];
  value[threadIdx.x] = 1;
  dynamic[threadIdx.x] = 1;
  out[threadIdx.x] = value[threadIdx.x] + dynamic[threadIdx.x];
}
void static_and_dynamic_shared_memory_beyond_48_kib(bool planted) {
  crowded_kernel<<<1, 32, planted ? 41 << 10 : 40 << 10>>>(cleared<int>());
  finish();
}
void static_shared_memory_beside_all_that_was_set_aside(bool planted) {
  int most = 0;
  (void)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  (void)cudaFuncSetAttribute(crowded_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             planted ? most : most - (8 << 10));
  crowded_kernel<<<1, 32, 41 << 10>>>(cleared<int>());
  finish();
}

__global__ void roomy_kernel(int* out) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  dynamic[threadIdx.x] = 1;
  out[threadIdx.x] = dynamic[threadIdx.x];
}
void shared_memory_set_aside_on_another_device(bool planted) {
  (void)setenv("TESSERA_EMULATOR_DEVICES", "2", 1);
  int* const out = cleared<int>();
  (void)cudaSetDevice(planted ? 1 : 0);
  (void)cudaFuncSetAttribute(roomy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
  (void)cudaSetDevice(0);
  roomy_kernel<<<1, 32, 64 << 10>>>(out);
  finish();
}

__global__ void fetch_kernel(const int* at) { tessera::cuda::prefetch_to_l2(at); }
void fetched_from_nowhere(bool planted) {
  fetch_kernel<<<1, 32>>>(cleared<int>() + (planted ? 1 << 20 : 0));
  finish();
}

__global__ void something(int* out) { out[threadIdx.x] = 1; }
__global__ void something_else(int* out) { out[threadIdx.x] = 2; }

constexpr Fault kAll[] = {
    {"without_barrier", without_barrier, "shared memory that nobody wrote"},
    {"reused_too_early", reused_too_early, "nothing orders them"},
    {"ordered_by_a_shuffle", ordered_by_a_shuffle, "nothing orders them"},
    {"blocks_write_one_place", blocks_write_one_place, "writes what another block wrote"},
    {"a_block_reads_anothers_result", a_block_reads_anothers_result, "what another block"},
    {"counted_without_atomics", counted_without_atomics, "nothing orders them"},
    {"read_before_it_is_written", read_before_it_is_written, "shared memory that nobody wrote"},
    {"vectors_off_their_alignment", vectors_off_their_alignment, "which lies at multiples of 16"},
    {"shared_arrays_read_wider_than_they_lie", shared_arrays_read_wider_than_they_lie,
     "which lies at multiples of 16"},
    {"rows_of_matrices_off_16_bytes", rows_of_matrices_off_16_bytes, "16 bytes at an odd address"},
    {"read_before_it_has_arrived", read_before_it_has_arrived, "nothing orders them"},
    {"copied_over_what_is_still_read", copied_over_what_is_still_read, "nothing orders them"},
    {"more_threads_than_bounds", more_threads_than_bounds, "more threads than its launch bounds"},
    {"written_before_it_waited", written_before_it_waited, "memory before it waited"},
    {"ended_without_waiting", ended_without_waiting, "never waited"},
    {"fetched_from_nowhere", fetched_from_nowhere, "in no allocation"},
    {"overlapping_with_a_fill", overlapping_with_a_fill, "nothing to overlap with"},
    {"after_a_kernel_with_another_share_of_shared_memory", after_a_kernel_with_another_share_of_shared_memory,
     "another share of shared memory"},
    {"static_and_dynamic_shared_memory_beyond_48_kib", static_and_dynamic_shared_memory_beyond_48_kib,
     "beyond 48 KiB"},
    {"static_shared_memory_beside_all_that_was_set_aside", static_shared_memory_beside_all_that_was_set_aside,
     "up to the device's limit"},
    {"shared_memory_set_aside_on_another_device", shared_memory_set_aside_on_another_device,
     "more shared memory than was set aside"},
    {"many_threads_without_bounds", many_threads_without_bounds, "without launch bounds"},
};

}  // namespace

std::span<const Fault> all() { return kAll; }

void launch_something(void* stream) {
  static int* const out = cleared<int>();
  something<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(out);
}
void launch_something_else(void* stream, void* memory) {
  something_else<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<int*>(memory));
}

}  // namespace faults
