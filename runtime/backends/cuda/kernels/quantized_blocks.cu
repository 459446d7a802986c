// quantized_matmul and quantized_matmul_grad over weights of block types, and tables of them: plain kernels. The weight
// is decoded to f32, a strip at a time.
#include <algorithm>

#include "runtime/backends/cuda/kernels/block_weight.cuh"
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/quantized_weight.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// y[m, n] of the rows of a strip, k ascending.
template <class T>
struct StripProduct {
  const T* x;
  const float* strip;
  const T* bias;  // of these rows
  T* y;           // column 0 of these rows
  int64_t rows, N, K;
  __device__ void operator()(int64_t i) const {
    const int64_t m = i / rows, n = i % rows;
    Wide<T> sum = bias == nullptr ? Wide<T>(0) : widen(bias[n]);
    for (int64_t k = 0; k < K; ++k) sum += widen(x[m * K + k]) * static_cast<Wide<T>>(strip[n * K + k]);
    y[m * N + n] = narrow<T>(sum);
  }
};

// dx[m, k] of the columns of a strip, n ascending.
template <class T>
struct StripGradient {
  const T* dy;
  const float* strip;
  T* dx;  // the first of these columns
  int64_t columns, N, K;
  __device__ void operator()(int64_t i) const {
    const int64_t m = i / columns, k = i % columns;
    Wide<T> sum = 0;
    for (int64_t n = 0; n < N; ++n)
      sum += widen(dy[m * N + n]) * static_cast<Wide<T>>(strip[n * columns + k]);
    dx[m * K + k] = narrow<T>(sum);
  }
};

// dx[m, k] of a weight in 16 bits, n ascending.
template <class T, class Weight>
struct NarrowGradient {
  const T* dy;
  const uint8_t* w;
  T* dx;
  int64_t N, K, row_bytes;
  __device__ void operator()(int64_t i) const {
    const int64_t m = i / K, k = i % K;
    Wide<T> sum = 0;
    for (int64_t n = 0; n < N; ++n)
      sum += widen(dy[m * N + n]) * static_cast<Wide<T>>(Weight::number(w + n * row_bytes, k));
    dx[i] = narrow<T>(sum);
  }
};

// A block of a row that is looked up. Ids are untrusted: any value but one of this shard's rows gives 0.
template <class Block>
struct BlockRow {
  const uint8_t* table;
  const int32_t* ids;
  FactorIndex v;
  float* y;
  int64_t rows, blocks;
  __device__ void operator()(int64_t i) const {
    const int64_t row = v.to_local(ids[i / blocks]);
    float values[Block::kElements];
    if (row >= 0 && row < rows) {
      load_block<Block>(table, row * blocks + i % blocks, values);
    } else {
      for (int k = 0; k < Block::kElements; ++k) values[k] = 0;
    }
    for (int k = 0; k < Block::kElements; ++k) y[i * Block::kElements + k] = values[k];
  }
};

constexpr int64_t kStripFloats = int64_t{8} << 20;

PreparedKernel with_flops(PreparedKernel prepared, const QuantizedMatmulShape& s) {
  prepared.flops = 2.0 * double(s.M) * double(s.N) * double(s.K);
  prepared.efficiency = 0.01;
  return prepared;
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]
Result<PreparedKernel> prepare_quantized_matmul_blocks(const KernelSpec& spec) {
  if (spec.string("activations") != "f32")
    return Status(StatusCode::kUnsupported, "this kernel multiplies activations as they are");
  const QuantizedMatmulShape s = quantized_matmul_shape(spec);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_block_weight(s.dtype, [&](auto block) -> Result<PreparedKernel> {
      using Block = decltype(block);
      const int64_t rows = std::clamp<int64_t>(kStripFloats / std::max<int64_t>(s.K, 1), 1, std::max<int64_t>(s.N, 1));
      auto launch = [s, rows](const LaunchArgs& args) {
        auto* strip = static_cast<float*>(args.workspace);
        const int64_t blocks = s.K / Block::kElements, row_bytes = blocks * static_cast<int64_t>(sizeof(Block));
        for (int64_t n0 = 0; n0 < s.N; n0 += rows) {
          const int64_t count = std::min(rows, s.N - n0);
          launch_each(args.stream, count * blocks,
                      DecodeStrip<Block>{args.in<uint8_t>(1) + n0 * row_bytes, strip, blocks, 0, blocks});
          launch_each(args.stream, s.M * count,
                      StripProduct<T>{args.in<T>(0), strip, s.bias < 0 ? nullptr : args.in<T>(s.bias) + n0,
                                      args.out<T>(0) + n0, count, s.N, s.K});
        }
      };
      PreparedKernel prepared = with_flops(memory_bound(spec, make_kernel(launch)), s);
      prepared.workspace_bytes = 4 * rows * s.K;
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

// dy [M, N], w [N, K] -> dx [M, K]
Result<PreparedKernel> prepare_quantized_matmul_grad(const KernelSpec& spec) {
  QuantizedMatmulShape s;
  s.dtype = spec.input_dtype(1);
  s.N = spec.input_dims(0).back();
  s.K = spec.output_dims(0).back();
  s.M = s.K == 0 ? 0 : spec.output_elements(0) / s.K;
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    if (!is_block_type(s.dtype))
      return dispatch_weight(s.dtype, [&](auto weight) -> Result<PreparedKernel> {
        using Weight = decltype(weight);
        auto launch = [s](const LaunchArgs& args) {
          launch_each(args.stream, s.M * s.K,
                      NarrowGradient<T, Weight>{args.in<T>(0), args.in<uint8_t>(1), args.out<T>(0), s.N, s.K,
                                                Weight::row_bytes(s.K)});
        };
        return Result<PreparedKernel>(with_flops(memory_bound(spec, make_kernel(launch)), s));
      });
    return dispatch_block_weight(s.dtype, [&](auto block) -> Result<PreparedKernel> {
      using Block = decltype(block);
      const int64_t blocks = s.K / Block::kElements;
      const int64_t most = kStripFloats / std::max<int64_t>(s.N, 1) / Block::kElements;
      const int64_t width = std::clamp<int64_t>(most, 1, std::max<int64_t>(blocks, 1));
      auto launch = [s, blocks, width](const LaunchArgs& args) {
        auto* strip = static_cast<float*>(args.workspace);
        for (int64_t first = 0; first < blocks; first += width) {
          const int64_t count = std::min(width, blocks - first), columns = count * Block::kElements;
          launch_each(args.stream, s.N * count, DecodeStrip<Block>{args.in<uint8_t>(1), strip, blocks, first, count});
          launch_each(args.stream, s.M * columns,
                      StripGradient<T>{args.in<T>(0), strip, args.out<T>(0) + first * Block::kElements, columns,
                                       s.N, s.K});
        }
      };
      PreparedKernel prepared = with_flops(memory_bound(spec, make_kernel(launch)), s);
      prepared.workspace_bytes = 4 * s.N * width * Block::kElements;
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

// table [V, C] of a block type, ids [R] -> y [R, C] f32
Result<PreparedKernel> prepare_embedding_blocks(const KernelSpec& spec) {
  const int64_t V = spec.input_dims(0)[0], C = spec.input_dims(0)[1], count = spec.input_elements(1);
  const FactorIndex v(spec.factor('v'));
  return dispatch_block_weight(spec.input_dtype(0), [&](auto block) -> Result<PreparedKernel> {
    using Block = decltype(block);
    auto launch = [=](const LaunchArgs& args) {
      const int64_t blocks = C / Block::kElements;
      launch_each(args.stream, count * blocks,
                  BlockRow<Block>{args.in<uint8_t>(0), args.in<int32_t>(1), v, args.out<float>(0), V, blocks});
    };
    PreparedKernel prepared = memory_bound(spec, make_kernel(launch));
    prepared.bytes = 2 * operand_bytes(spec, 0);  // only the rows of the table that are looked up
    return Result<PreparedKernel>(std::move(prepared));
  });
}

}  // namespace tessera::cuda
