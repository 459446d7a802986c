// Ops of generation around the model: positions, the last row of every sequence, and the cache.
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

struct Positions {
  const int32_t* start;
  int32_t* y;
  int64_t T;
  FactorIndex t;
  __device__ void operator()(int64_t i) const {
    y[i] = static_cast<int32_t>(start[i / T] + t.to_global(i % T));
  }
};

template <class T>
struct SelectRow {
  const T* x;
  const int32_t* length;
  T* y;
  int64_t rows, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t b) const {
    const int64_t at = length[b];
    const bool there = at >= 1 && at <= rows;
    team.each(cols, [&](int64_t c) { y[b * cols + c] = there ? x[(b * rows + at - 1) * cols + c] : T(0); });
  }
};

template <class T>
struct CacheWrite {
  const T* rows;
  const int32_t *start, *length;
  T* cache;
  int64_t S, T_rows, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t b = row / T_rows, t = row % T_rows, at = start[b] + t;
    if (t >= length[b] || at < 0 || at >= S) return;
    team.each(cols, [&](int64_t c) { cache[(b * S + at) * cols + c] = rows[row * cols + c]; });
  }
};

// A kernel that moves rows of `cols` elements, 16 bytes at a time where rows and addresses allow it:
// make(U{}, cols) moves rows of so many U.
template <class Make>
Result<PreparedKernel> by_moved_rows(const KernelSpec& spec, int64_t cols, Make make) {
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using Pack = unsigned __int128;
    constexpr auto kVec = static_cast<int64_t>(sizeof(Pack) / sizeof(zero));
    auto plain = make(zero, cols);
    if (cols % kVec != 0) return memory_bound(spec, std::move(plain));
    return memory_bound(spec, where_aligned(spec, make(Pack{}, cols / kVec), std::move(plain)));
  });
}

}  // namespace

// start [B] -> y [B, T]. Wraps instead of overflowing: `start` is untrusted.
Result<PreparedKernel> prepare_positions(const KernelSpec& spec) {
  const int64_t count = spec.output_elements(0), T = spec.output_dims(0)[1];
  const FactorIndex t(spec.factor('t'));
  return memory_bound(
      spec, make_kernel([=](const LaunchArgs& args) {
        launch_each(args.stream, count, Positions{args.in<int32_t>(0), args.out<int32_t>(0), T, t});
      }));
}

// x [B, T, C], length [B] -> y [B, C]. `length` is untrusted: a row that does not exist gives 0.
Result<PreparedKernel> prepare_select_row(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t B = dims[0], rows = dims[1];
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, by_moved_rows(spec, dims[2], [=](auto zero, int64_t cols) {
                         using T = decltype(zero);
                         return make_kernel([=](const LaunchArgs& args) {
                           launch_rows(
                               args.stream, B, cols,
                               SelectRow<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), rows, cols});
                         });
                       }));
  prepared.bytes = 2 * operand_bytes(spec, 0);
  return std::move(prepared);
}

// cache [B, S, KV, D], new [B, T, KV, D], start, length [B] -> cache. `start` and `length` are untrusted:
// rows outside the cache are dropped.
Result<PreparedKernel> prepare_cache_write(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t B = dims[0], S = dims[1], rows = spec.input_dims(1)[1], row = dims[2] * dims[3];
  TSR_ASSIGN_OR_RETURN(
      PreparedKernel prepared, by_moved_rows(spec, row, [=](auto zero, int64_t cols) {
        using T = decltype(zero);
        const auto cache_bytes = static_cast<size_t>(B * S * cols) * sizeof(T);
        return make_kernel([=](const LaunchArgs& args) -> Status {
          if (args.inputs[0] != args.outputs[0] && cache_bytes > 0)
            TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(args.outputs[0], args.inputs[0], cache_bytes,
                                                          cudaMemcpyDeviceToDevice, args.stream),
                                          "cache_write"));
          launch_rows(args.stream, B * rows, cols,
                      CacheWrite<T>{args.in<T>(1), args.in<int32_t>(2), args.in<int32_t>(3), args.out<T>(0),
                                    S, rows, cols});
          return {};
        });
      }));
  return as_decode_step(std::move(prepared), {spec.input_dtype(0), CacheStep{B, S, rows, row}});
}

}  // namespace tessera::cuda
