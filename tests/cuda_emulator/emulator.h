// CUDA on the CPU, for tests: kernels run thread by thread as fibers, so that their arithmetic, indices,
// barriers and warp shuffles are checked on a machine without a GPU. Force-included before translated CUDA
// sources. It says nothing of speed. What threads do to memory is compared with what orders them
// (accesses.h), fibers run in an order drawn from TESSERA_EMULATOR_SEED, and streams run as late as they may,
// which shows missing events. A pointer is used at multiples of what it points to.
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <vector_functions.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulator/accesses.h"

#undef __shared__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#define TSR_CUDA_EMULATED 1

namespace emulator {

struct Position {
  uint3 thread, block;
  dim3 threads, blocks;
};
const Position& position();  // of the running fiber

struct Config {
  dim3 blocks, threads;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  const char* kernel = "";  // as it is written
  bool overlaps = false;    // may begin before what was launched before it has ended
  int set_aside = -1;       // dynamic shared memory, by cudaFuncSetAttribute; -1: nobody asked
};
// A kernel as it was compiled: what has been loaded.
struct Compiled {
  bool is_loaded = false;
};
Compiled& compiled(const void* kernel);
// `name`: of a kernel with dynamic shared memory.
cudaError_t enqueue(const Config& config, Compiled& compiled, const void* name, std::function<void()> body);

template <class Kernel, class... Args>
void launch(Config config, const char* text, const void* name, Kernel kernel, Args... args) {
  static Compiled compiled;
  config.kernel = text;
  enqueue(config, compiled, name, [=] { kernel(args...); });
}
// The counterpart of cudaLaunchKernelEx.
template <class... Parameters, class... Arguments>
cudaError_t launch_by_config(const cudaLaunchConfig_t* given, void (*kernel)(Parameters...),
                             Arguments&&... arguments) {
  Config config{given->gridDim, given->blockDim, given->dynamicSmemBytes, given->stream};
  config.kernel = __PRETTY_FUNCTION__;
  for (unsigned i = 0; i < given->numAttrs; ++i)
    config.overlaps |= given->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                       given->attrs[i].val.programmaticStreamSerializationAllowed != 0;
  const auto* name = reinterpret_cast<const void*>(kernel);
  std::tuple<std::decay_t<Parameters>...> kept(std::forward<Arguments>(arguments)...);
  return enqueue(config, compiled(name), name, [kernel, kept] { std::apply(kernel, kept); });
}
// An array in shared memory: no constructor runs, and it is aligned as it asks for and no better, so that
// wider accesses show.
void note_static_shared(const void* array, size_t bytes, size_t alignment);  // that the kernel has it
template <class Array, size_t kAlignment = alignof(Array)>
struct Shared {
  unsigned char bytes[sizeof(Array) + 3 * kAlignment];
  Array& get() {
    note_static_shared(bytes, sizeof(Array), kAlignment);
    const auto at = reinterpret_cast<uintptr_t>(bytes) + 2 * kAlignment - 1;
    return *reinterpret_cast<Array*>(at / (2 * kAlignment) * (2 * kAlignment) + kAlignment);
  }
};
// The block has no more threads than the kernel was declared for.
void check_bounds(unsigned threads, unsigned blocks = 1);

unsigned char* dynamic_shared();
void barrier();
void warp_barrier();
// Leaves `bytes` of this lane, and returns once all lanes of the warp have: the value of `lane`.
const void* exchange(const void* mine, size_t bytes, int lane);
inline int lane() {
  const Position& at = position();
  const unsigned rank = at.thread.x + at.threads.x * (at.thread.y + at.threads.y * at.thread.z);
  return static_cast<int>(rank % 32);
}
// The values of all lanes, 64 bytes apart; what mma instructions are made from.
const unsigned char* exchange_all(const void* mine, size_t bytes);
// 16 bytes, zeros where `from` is null, that arrive when this thread waits.
void copy_async(void* to, const void* from);
void copy_async_wait();
void check_aligned(const void* at);  // at 16 bytes
void check_fetch(const void* at);    // that it lies in an allocation
void wait_for_previous();

}  // namespace emulator

#define threadIdx (emulator::position().thread)
#define blockIdx (emulator::position().block)
#define blockDim (emulator::position().threads)
#define gridDim (emulator::position().blocks)

#define cudaLaunchKernelEx emulator::launch_by_config
#define cudaGridDependencySynchronize emulator::wait_for_previous
#define cudaTriggerProgrammaticLaunchCompletion() ((void)0)

inline void __syncthreads() { emulator::barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulator::warp_barrier(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  T result;
  std::memcpy(&result, emulator::exchange(&value, sizeof(T), lane & 31), sizeof(T));
  return result;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, emulator::lane() ^ lanes);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int delta) {
  const int from = emulator::lane() - delta;
  return __shfl_sync(mask, value, from < 0 ? emulator::lane() : from);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const unsigned char mine = predicate != 0;
  const unsigned char* all = emulator::exchange_all(&mine, 1);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane * 64]) << lane;
  return bits;
}

template <class T>
__attribute__((noinline, no_sanitize("thread"))) T atomicAdd(T* at, T value) {
  emulator::note_atomic(at, sizeof(T));
  const T old = *at;
  *at = static_cast<T>(old + value);
  return old;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, 8);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

template <class F>
cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, F* kernel) {
  return cudaFuncGetAttributes(out, reinterpret_cast<const void*>(kernel));
}
