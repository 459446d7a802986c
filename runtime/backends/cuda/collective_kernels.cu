#include "runtime/backends/cuda/collective_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct Sum {
  using W = Wide<T>;
  __device__ static W load(T x) { return widen(x); }
  __device__ static W apply(W a, W b) { return a + b; }
  __device__ static T store(W x) { return narrow<T>(x); }
};
template <class T>
struct Max : Sum<T> {
  using W = Wide<T>;
  __device__ static W apply(W a, W b) { return Larger{}(a, b); }
};
// Integer sums wrap, as they do on every device.
template <class T, class U>
struct IntegerSum {
  using W = T;
  __device__ static W load(T x) { return x; }
  __device__ static W apply(W a, W b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }
  __device__ static T store(W x) { return x; }
};
template <class T, class U>
struct IntegerMax : IntegerSum<T, U> {
  __device__ static T apply(T a, T b) { return b > a ? b : a; }
};

template <class T, class Op>
__global__ void reduce_kernel(ReduceTask task) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, total = task.rows * task.count;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < total; at += step) {
    const int64_t row = task.rows == 1 ? 0 : at / task.count, i = at - row * task.count;
    const int64_t from = row * task.in_stride + i, to = row * task.out_stride + i;
    auto value = Op::load(static_cast<const T*>(task.in[0])[from]);
    for (int32_t member = 1; member < task.in_count; ++member)
      value = Op::apply(value, Op::load(static_cast<const T*>(task.in[member])[from]));
    const T result = Op::store(value);
    for (int32_t member = 0; member < task.out_count; ++member)
      static_cast<T*>(task.out[member])[to] = result;
  }
}

template <class T, class Op>
cudaError_t launch(cudaStream_t stream, const ReduceTask& task) {
  if (task.rows * task.count > 0)
    reduce_kernel<T, Op><<<grid_for(task.rows * task.count, 256), 256, 0, stream>>>(task);
  return cudaGetLastError();
}

using LaunchFn = cudaError_t (*)(cudaStream_t, const ReduceTask&);
struct Row {
  DType dtype;
  LaunchFn sum, max;
};
constexpr Row kRows[] = {
    {DType::kF32, launch<float, Sum<float>>, launch<float, Max<float>>},
    {DType::kF64, launch<double, Sum<double>>, launch<double, Max<double>>},
    {DType::kF16, launch<__half, Sum<__half>>, launch<__half, Max<__half>>},
    {DType::kBF16, launch<__nv_bfloat16, Sum<__nv_bfloat16>>, launch<__nv_bfloat16, Max<__nv_bfloat16>>},
    {DType::kI32, launch<int32_t, IntegerSum<int32_t, uint32_t>>,
     launch<int32_t, IntegerMax<int32_t, uint32_t>>},
    {DType::kI64, launch<int64_t, IntegerSum<int64_t, uint64_t>>,
     launch<int64_t, IntegerMax<int64_t, uint64_t>>},
};

LaunchFn find(int32_t dtype, int32_t reduce) {
  for (const Row& row : kRows)
    if (static_cast<int32_t>(row.dtype) == dtype)
      return reduce == 0 ? row.sum : reduce == 1 ? row.max : nullptr;
  return nullptr;
}

template <class Unit>
__global__ void blocks_kernel(BlockTask task) {
  const int64_t run = task.run_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t total = task.outer * task.first * task.middle * run;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < total; at += step) {
    int64_t rest = at;
    const int64_t i = rest % run;
    rest /= run;
    const int64_t m = rest % task.middle;
    rest /= task.middle;
    const int64_t f = rest % task.first, o = rest / task.first;
    const char* in = static_cast<const char*>(task.in) + o * task.in_strides[0] + f * task.in_strides[1] +
                     m * task.in_strides[2];
    char* out = static_cast<char*>(task.out) + o * task.out_strides[0] + f * task.out_strides[1] +
                m * task.out_strides[2];
    reinterpret_cast<Unit*>(out)[i] = reinterpret_cast<const Unit*>(in)[i];
  }
}

}  // namespace

cudaError_t find_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, blocks_kernel<uint4>);
}

bool can_reduce(int32_t dtype, int32_t reduce) { return find(dtype, reduce) != nullptr; }

cudaError_t launch_reduce(cudaStream_t stream, int32_t dtype, int32_t reduce, const ReduceTask& task) {
  const LaunchFn fn = find(dtype, reduce);
  return fn != nullptr ? fn(stream, task) : cudaErrorNotSupported;
}

cudaError_t launch_blocks(cudaStream_t stream, const BlockTask& task) {
  const int64_t total = task.outer * task.first * task.middle * task.run_bytes;
  if (total <= 0) return cudaSuccess;
  // The largest unit that divides every address and length.
  uint64_t bits = reinterpret_cast<uintptr_t>(task.in) | reinterpret_cast<uintptr_t>(task.out) |
                  static_cast<uint64_t>(task.run_bytes);
  for (int i = 0; i < 3; ++i)
    bits |= static_cast<uint64_t>(task.in_strides[i]) | static_cast<uint64_t>(task.out_strides[i]);
  if (bits % 16 == 0)
    blocks_kernel<uint4><<<grid_for(total / 16, 256), 256, 0, stream>>>(task);
  else if (bits % 4 == 0)
    blocks_kernel<uint32_t><<<grid_for(total / 4, 256), 256, 0, stream>>>(task);
  else
    blocks_kernel<uint8_t><<<grid_for(total, 256), 256, 0, stream>>>(task);
  return cudaGetLastError();
}

}  // namespace tessera::cuda
