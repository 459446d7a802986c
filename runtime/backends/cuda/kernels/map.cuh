// Element-wise kernels. A functor gets the index of the element and the widened operands and leaves the
// results. A thread reads all operands of its elements before it writes any result, so kernels work in place
// too. Sixteen bytes at a time where every address allows it.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

template <int kIn, int kOut>
struct MapOperands {
  const void* in[kIn];
  void* out[kOut];

  bool are_aligned() const {
    uintptr_t bits = 0;
    for (const void* each : in) bits |= reinterpret_cast<uintptr_t>(each);
    for (const void* each : out) bits |= reinterpret_cast<uintptr_t>(each);
    return bits % 16 == 0;
  }
};

// Packs first, first + step, ... below `packs`, each of kVec elements. kIn operands of type T come first,
// then kWideIn ones of type Wide<T>; likewise the results.
template <class F, class T, int kIn, int kWideIn, int kOut, int kWideOut, int kVec>
__device__ inline void map_packs(const F& f, const MapOperands<kIn + kWideIn, kOut + kWideOut>& operands,
                                 int64_t first, int64_t packs, int64_t step) {
  using W = Wide<T>;
  // Wide operands also go in pieces of 16 bytes.
  constexpr int kWideVec = kVec * sizeof(W) <= 16 ? kVec : 16 / static_cast<int>(sizeof(W));
  for (int64_t pack = first; pack < packs; pack += step) {
    W x[kVec][kIn + kWideIn], y[kVec][kOut + kWideOut];
#pragma unroll
    for (int i = 0; i < kIn; ++i) {
      const auto loaded = static_cast<const Pack<T, kVec>*>(operands.in[i])[pack];
#pragma unroll
      for (int v = 0; v < kVec; ++v) x[v][i] = widen(loaded.value[v]);
    }
#pragma unroll
    for (int i = kIn; i < kIn + kWideIn; ++i)
#pragma unroll
      for (int piece = 0; piece < kVec / kWideVec; ++piece) {
        const auto loaded =
            static_cast<const Pack<W, kWideVec>*>(operands.in[i])[pack * (kVec / kWideVec) + piece];
#pragma unroll
        for (int v = 0; v < kWideVec; ++v) x[piece * kWideVec + v][i] = loaded.value[v];
      }
#pragma unroll
    for (int v = 0; v < kVec; ++v) f(pack * kVec + v, x[v], y[v]);
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      Pack<T, kVec> stored;
#pragma unroll
      for (int v = 0; v < kVec; ++v) stored.value[v] = narrow<T>(y[v][o]);
      store_whole(static_cast<Pack<T, kVec>*>(operands.out[o]) + pack, stored);
    }
#pragma unroll
    for (int o = kOut; o < kOut + kWideOut; ++o)
#pragma unroll
      for (int piece = 0; piece < kVec / kWideVec; ++piece) {
        Pack<W, kWideVec> stored;
#pragma unroll
        for (int v = 0; v < kWideVec; ++v) stored.value[v] = y[piece * kWideVec + v][o];
        store_whole(static_cast<Pack<W, kWideVec>*>(operands.out[o]) + pack * (kVec / kWideVec) + piece,
                    stored);
      }
  }
}

// Elements first, first + step, ... below `count`, one at a time.
template <class F, class T, int kIn, int kWideIn, int kOut, int kWideOut>
__device__ inline void map_singles(const F& f, const MapOperands<kIn + kWideIn, kOut + kWideOut>& operands,
                                   int64_t first, int64_t count, int64_t step) {
  using W = Wide<T>;
  for (int64_t i = first; i < count; i += step) {
    W x[kIn + kWideIn], y[kOut + kWideOut];
    for (int n = 0; n < kIn; ++n) x[n] = widen(static_cast<const T*>(operands.in[n])[i]);
    for (int n = kIn; n < kIn + kWideIn; ++n) x[n] = static_cast<const W*>(operands.in[n])[i];
    f(i, x, y);
    for (int n = 0; n < kOut; ++n) static_cast<T*>(operands.out[n])[i] = narrow<T>(y[n]);
    for (int n = kOut; n < kOut + kWideOut; ++n) static_cast<W*>(operands.out[n])[i] = y[n];
  }
}

// `begin` is called once a thread.
template <class F, class T, int kIn, int kWideIn, int kOut, int kWideOut, int kVec>
__global__ void map_kernel(F f, MapOperands<kIn + kWideIn, kOut + kWideOut> operands, int64_t count) {
  f.begin();
  const int64_t packs = count / kVec;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if constexpr (kVec == 1) {
    map_singles<F, T, kIn, kWideIn, kOut, kWideOut>(f, operands, first, count, step);
  } else {
    map_packs<F, T, kIn, kWideIn, kOut, kWideOut, kVec>(f, operands, first, packs, step);
    map_singles<F, T, kIn, kWideIn, kOut, kWideOut>(f, operands, packs * kVec + first, count, step);
  }
}

template <class T, int kIn, int kOut, int kWideIn = 0, int kWideOut = 0, class F>
void launch_map(cudaStream_t stream, int64_t count, F f,
                const MapOperands<kIn + kWideIn, kOut + kWideOut>& operands) {
  if (count <= 0) return;
  constexpr int kVec = 16 / sizeof(T), kThreads = 256;
  if (operands.are_aligned() && count >= kVec)
    map_kernel<F, T, kIn, kWideIn, kOut, kWideOut, kVec>
        <<<grid_for(count, kThreads * kVec), kThreads, 0, stream>>>(f, operands, count);
  else
    map_kernel<F, T, kIn, kWideIn, kOut, kWideOut, 1>
        <<<grid_for(count, kThreads), kThreads, 0, stream>>>(f, operands, count);
}

// Base of functors without state.
struct NoSetUp {
  __device__ void begin() {}
};

// The value unchanged: loading and storing convert it.
struct SameValue : NoSetUp {
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    y[0] = x[0];
  }
};

// y = op(x): `make(args, W{})` gives the functor at launch, when its scalars are at known addresses.
template <int kIn, int kOut, class Make>
Result<PreparedKernel> map_op(const KernelSpec& spec, Make make) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          MapOperands<kIn, kOut> operands;
                          for (int i = 0; i < kIn; ++i) operands.in[i] = args.inputs[i];
                          for (int o = 0; o < kOut; ++o) operands.out[o] = args.outputs[o];
                          launch_map<T, kIn, kOut>(args.stream, count, make(args, T{}), operands);
                        }));
  });
}

}  // namespace tessera::cuda
