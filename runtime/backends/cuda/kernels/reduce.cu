#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/strided.cuh"

namespace tessera::cuda {

namespace {

// A team reduces the elements of one result.
template <class T, class Op>
struct Reduce {
  using W = Wide<T>;
  const T* x;
  T* y;
  StridedBox kept, reduced;
  int64_t each;
  W start, factor;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t result) const {
    const int64_t base = kept.offset_of(result);
    W value = start;
    team.each(each, [&](int64_t i) { value = Op{}(value, widen(x[base + reduced.offset_of(i)])); });
    value = team.reduce(value, Op{});
    if (team.rank == 0) y[result] = narrow<T>(value * factor);
  }
};

template <class Op>
Result<PreparedKernel> reduce(const KernelSpec& spec, double start, double factor) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto dims = spec.input_dims(0), axes = spec.ints("axes");
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(dims, strides);
    StridedBox kept, reduced;
    for (size_t dim = 0; dim < dims.size(); ++dim)
      (contains(axes, static_cast<int64_t>(dim)) ? reduced : kept).add(dims[dim], strides[dim]);
    const int64_t results = kept.elements(), each = reduced.elements();
    return by_rows(spec, results, each, [=](const LaunchArgs& args) {
      return Reduce<T, Op>{args.in<T>(0), args.out<T>(0), kept, reduced, each, W(start), W(factor)};
    });
  });
}

constexpr int kColumnWarps = 8;

// Sums a chunk of rows, a pack of columns a thread: a block takes 32 packs, each of its warps every
// kColumnWarps-th row, and the warps' sums are added in order.
template <class T>
__global__ void __launch_bounds__(32 * kColumnWarps)
    packed_columns_kernel(const T* x, ColumnChunks shape, Wide<T>* partial) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T)), kCols = 32 * kVec;
  __shared__ W total[kColumnWarps][kCols];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = int64_t{blockIdx.x} * kCols, col = first + lane * kVec, chunk = blockIdx.y;
  const int64_t begin = chunk * shape.rows_per_chunk;
  const int64_t end = begin + shape.rows_per_chunk < shape.rows ? begin + shape.rows_per_chunk : shape.rows;
  W sums[kVec] = {};
  if (col < shape.cols)
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kColumnWarps) {
      W value[kVec];
      load_pack(x + row * shape.cols + col, value);
      for (int i = 0; i < kVec; ++i) sums[i] += value[i];
    }
    // Lanes are adjacent: no two in one bank.
#pragma unroll
  for (int i = 0; i < kVec; ++i) total[warp][i * 32 + lane] = sums[i];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kCols && first + c < shape.cols; c += 32 * kColumnWarps) {
    W sum = 0;
    for (int w = 0; w < kColumnWarps; ++w) sum += total[w][c % kVec * 32 + c / kVec];
    partial[chunk * shape.cols + first + c] = sum;
  }
}

template <class T>
struct Broadcast {
  const T* x;
  T* y;
  StridedBox box;
  Wide<T> factor;
  __device__ void operator()(int64_t i) const { y[i] = narrow<T>(widen(x[box.offset_of(i)]) * factor); }
};

}  // namespace

Result<PreparedKernel> prepare_reduce_sum(const KernelSpec& spec) { return reduce<Plus>(spec, 0, 1); }
Result<PreparedKernel> prepare_reduce_mean(const KernelSpec& spec) {
  const double count = global_count(spec, spec.ints("axes"));
  return reduce<Plus>(spec, 0, count == 0 ? 0 : 1 / count);
}
Result<PreparedKernel> prepare_reduce_max(const KernelSpec& spec) {
  return reduce<Larger>(spec, -std::numeric_limits<double>::infinity(), 1);
}

// x [M, N] -> y [N]
Result<PreparedKernel> prepare_sum_leading(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return with_sums_type<T>(spec, [&](auto sum) -> Result<PreparedKernel> {
      using S = decltype(sum);
      const int64_t cols = spec.output_elements(0), rows = cols == 0 ? 0 : spec.input_elements(0) / cols;
      const ColumnChunks shape(rows, cols);
      const int64_t workspace = shape.workspace_bytes<Wide<T>>(1);
      auto plain = make_kernel([=](const LaunchArgs& args) {
        launch_columns<S, 1>(args, shape, ColumnSum<T>{args.in<T>(0), cols}, {{args.out<S>(0)}});
      });
      constexpr int64_t kVec = 16 / static_cast<int64_t>(sizeof(T)), kCols = 32 * kVec;
      if (cols == 0 || cols % kVec != 0) return memory_bound(spec, std::move(plain), workspace);
      auto packed = make_kernel([=](const LaunchArgs& args) {
        const dim3 grid(static_cast<unsigned>((cols + kCols - 1) / kCols),
                        static_cast<unsigned>(shape.chunks));
        packed_columns_kernel<T><<<grid, 32 * kColumnWarps, 0, args.stream>>>(
            args.in<T>(0), shape, static_cast<Wide<T>*>(args.workspace));
        launch_column_totals<S, 1>(args, shape.chunks, cols, {{args.out<S>(0)}});
      });
      return memory_bound(spec, where_aligned(spec, std::move(packed), std::move(plain)), workspace);
    });
  });
}

Result<PreparedKernel> prepare_broadcast(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.output_dims(0), axes = spec.ints("axes");
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(spec.input_dims(0), strides);
    StridedBox box;
    int x_dim = 0;
    for (size_t dim = 0; dim < dims.size(); ++dim)
      box.add(dims[dim], contains(axes, static_cast<int64_t>(dim)) ? 0 : strides[x_dim++]);
    const double count = spec.i64("mean") == 1 ? global_count(spec, axes) : 1;
    const Wide<T> factor = static_cast<Wide<T>>(count == 0 ? 0 : 1 / count);
    const int64_t elements = spec.output_elements(0);
    PreparedKernel prepared = memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_each(args.stream, elements, Broadcast<T>{args.in<T>(0), args.out<T>(0), box, factor});
        }));
    prepared.bytes = operand_bytes(spec, 1);
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
