// scaled_matmul: matmuls of 8-bit numbers. cuBLASLt wants both operands contiguous along k, and extents that
// are multiples of 16; other operands are packed so in the workspace, a byte an element. Each packed operand
// serves one matmul: x and dy transposed for dw, w transposed for dx.
#include <cmath>

#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/fp8.cuh"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/rates.h"

namespace tessera::cuda {

namespace {

constexpr int64_t kUnit = 16, kLine = 256;
int64_t padded(int64_t extent) { return (extent + kUnit - 1) / kUnit * kUnit; }
int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// ScaledShape: C [M, N] = A [M, K] B [K, N], with the op's operands that A and B are, and their layouts.
struct ScaledShape {
  int64_t M, N, K;
  int a, b;                   // operands; their scales are 2 + a and 2 + b
  bool a_along_k, b_along_k;  // contiguous along K; else along M, N
  bool has_bias;
};

int64_t product_but_last(std::span<const int64_t> dims) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return rows;
}

ScaledShape matmul_shape(const KernelSpec& spec) {
  return {product_but_last(spec.input_dims(0)),
          spec.output_dims(0).back(),
          spec.input_dims(0).back(),
          0,
          1,
          true,
          spec.i64("trans_w") == 1,
          spec.input_count() == 5 && spec.factor('k').begin[0] == 0};
}

// dw^T = dy^T x is the same product with the operands exchanged.
ScaledShape weight_grad_shape(const KernelSpec& spec) {
  const int a = spec.i64("trans_w") == 1 ? 1 : 0;
  return {spec.input_dims(a).back(),
          spec.input_dims(1 - a).back(),
          product_but_last(spec.input_dims(0)),
          a,
          1 - a,
          false,
          false,
          false};
}

double flops_of(const ScaledShape& shape) {
  return 2.0 * double(shape.M) * double(shape.N) * double(shape.K);
}

Status check_device() {
  int device = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetDevice(&device), "cudaGetDevice"));
  TSR_ASSIGN_OR_RETURN(const Rates rates, device_rates(device));
  if (std::pair(rates.major, rates.minor) >= std::pair(8, 9)) return {};
  return Status(
      StatusCode::kUnsupported,
      format("products of 8-bit floats need a GPU of compute capability 8.9 or later (Ada, Hopper), "
             "{} has {}.{}: use precision bf16",
             rates.name, rates.major, rates.minor));
}

// --- on plain cores

template <class T>
struct StoreScaled {
  const Wide<T>*a_scale, *b_scale;
  const T* bias;  // null for none
  T* y;
  int64_t N;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    sum = sum * *a_scale * *b_scale;
    if (bias != nullptr) sum += widen(bias[n]);
    y[m * N + n] = narrow<T>(sum);
  }
};

Result<PreparedKernel> plain(const KernelSpec& spec, const ScaledShape& s) {
  TSR_RETURN_IF_ERROR(check_device());
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    return dispatch_fp8<W>(spec.input_dtype(s.a), [&](auto a_code) -> Result<PreparedKernel> {
      return dispatch_fp8<W>(spec.input_dtype(s.b), [&](auto b_code) -> Result<PreparedKernel> {
        using A = decltype(a_code);
        using B = decltype(b_code);
        const GemmShape shape{1,
                              s.M,
                              s.N,
                              s.K,
                              0,
                              s.a_along_k ? s.K : 1,
                              s.a_along_k ? 1 : s.M,
                              0,
                              s.b_along_k ? 1 : s.N,
                              s.b_along_k ? s.K : 1};
        if (gemm_blocks(shape) >= (int64_t{1} << 31))
          return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(shape)));
        return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                               launch_gemm(
                                   args.stream, shape, args.in<A>(s.a), args.in<B>(s.b), WholeGemm{},
                                   StoreScaled<T>{args.in<W>(2 + s.a), args.in<W>(2 + s.b),
                                                  s.has_bias ? args.in<T>(4) : nullptr, args.out<T>(0), s.N});
                             }),
                             shape);
      });
    });
  });
}

// --- on tensor cores

// [rows, cols] -> [padded rows, padded cols], zeros beyond; 16 codes a call.
struct PadCodes {
  const uint8_t* from;
  uint8_t* to;
  int64_t rows, cols, to_cols;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i * kUnit / to_cols, col = i * kUnit % to_cols;
    Pack<uint8_t, kUnit> made;
#pragma unroll
    for (int c = 0; c < kUnit; ++c)
      made.value[c] = row < rows && col + c < cols ? from[row * cols + col + c] : uint8_t{0};
    store_whole(reinterpret_cast<Pack<uint8_t, kUnit>*>(to + i * kUnit), made);
  }
};

// [rows, cols] -> [padded cols, padded rows], zeros beyond, in tiles through shared memory; a thread reads
// and writes four adjacent ones. `fours`: rows of `from` begin at multiples of four.
constexpr int kTile = 64, kTileFours = kTile / 4, kTileThreads = 256;

__global__ void __launch_bounds__(kTileThreads)
    transpose_codes(const uint8_t* from, uint8_t* to, int64_t rows, int64_t cols, int64_t to_rows,
                    int64_t to_cols, bool fours) {
  __shared__ __align__(16) uint8_t tile[kTile][kTile + 4];
  const int64_t across = (to_rows + kTile - 1) / kTile, down = (to_cols + kTile - 1) / kTile;
  const int four = threadIdx.x % kTileFours * 4, line = threadIdx.x / kTileFours;
  for (int64_t at = blockIdx.x; at < across * down; at += gridDim.x) {
    const int64_t row0 = at / across * kTile, col0 = at % across * kTile;
    for (int r = line; r < kTile; r += kTileThreads / kTileFours) {
      const int64_t row = row0 + r, col = col0 + four;
      Pack<uint8_t, 4> read{};
      if (fours && row < rows && col + 4 <= cols)
        read = *reinterpret_cast<const Pack<uint8_t, 4>*>(from + row * cols + col);
      else
        for (int i = 0; i < 4; ++i)
          read.value[i] = row < rows && col + i < cols ? from[row * cols + col + i] : uint8_t{0};
      *reinterpret_cast<Pack<uint8_t, 4>*>(&tile[r][four]) = read;
    }
    __syncthreads();
    for (int c = line; c < kTile; c += kTileThreads / kTileFours) {
      Pack<uint8_t, 4> made;
      for (int i = 0; i < 4; ++i) made.value[i] = tile[four + i][c];
      // Extents of the result are multiples of 16.
      if (col0 + c < to_rows && row0 + four < to_cols)
        *reinterpret_cast<Pack<uint8_t, 4>*>(to + (col0 + c) * to_cols + row0 + four) = made;
    }
    __syncthreads();
  }
}

// An operand packed for the library: [padded rows, padded K].
struct Packing {
  int64_t rows, K;
  bool along_k;
  bool is_needed() const { return !along_k || rows % kUnit != 0 || K % kUnit != 0; }
  int64_t bytes() const { return is_needed() ? lines(padded(rows) * padded(K)) : 0; }
  const void* pack(const void* from, uint8_t* to, cudaStream_t stream) const {
    if (!is_needed()) return from;
    const auto* codes = static_cast<const uint8_t*>(from);
    if (along_k) {
      launch_each(stream, padded(rows) * padded(K) / kUnit, PadCodes{codes, to, rows, K, padded(K)});
    } else {
      const int64_t tiles = (padded(rows) + kTile - 1) / kTile * ((padded(K) + kTile - 1) / kTile);
      transpose_codes<<<grid_for(tiles, 1), kTileThreads, 0, stream>>>(codes, to, K, rows, padded(rows),
                                                                       padded(K), rows % 4 == 0);
    }
    return to;
  }
};

// The library's result, padded or not -> y, bias added.
template <class T>
struct FinishScaled {
  const T *sums, *bias;
  T* y;
  int64_t N, row;
  __device__ void operator()(int64_t i) const {
    Wide<T> value = widen(sums[i / N * row + i % N]);
    if (bias != nullptr) value += widen(bias[i % N]);
    y[i] = narrow<T>(value);
  }
};

template <class T>
Result<PreparedKernel> on_tensor_cores(const KernelSpec& spec, const ScaledShape& s) {
  if (s.M == 0 || s.N == 0 || s.K == 0)
    return Status(StatusCode::kUnsupported, format("a product of {} x {} x {}", s.M, s.N, s.K));
  TSR_RETURN_IF_ERROR(check_device());
  const bool is_padded = s.M % kUnit != 0 || s.N % kUnit != 0;
  LtShape shape{padded(s.M), padded(s.N), padded(s.K), false, true, spec.input_dtype(s.a), false};
  shape.scaled = true;
  shape.b_dtype = spec.input_dtype(s.b);
  shape.c_dtype = spec.output_dtype(0);
  // The library's biases have 16 bits and the length of a row.
  shape.has_bias = s.has_bias && !is_padded && sizeof(T) == 2;
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const CublasLtMatmul> product,
                       CublasLtMatmul::create(shape, LtChoices(spec).take()));
  const bool finishes = is_padded || s.has_bias != shape.has_bias;
  const Packing a{s.M, s.K, s.a_along_k}, b{s.N, s.K, s.b_along_k};
  const int64_t c_bytes = is_padded ? lines(shape.M * shape.N * static_cast<int64_t>(sizeof(T))) : 0;
  auto launch = [=](const LaunchArgs& args) -> Status {
    auto* memory = reinterpret_cast<uint8_t*>(lines(reinterpret_cast<intptr_t>(args.workspace)));
    const void* a_codes = a.pack(args.inputs[s.a], memory, args.stream);
    const void* b_codes = b.pack(args.inputs[s.b], memory + a.bytes(), args.stream);
    memory += a.bytes() + b.bytes();
    T* y = args.out<T>(0);
    T* sums = is_padded ? reinterpret_cast<T*>(memory) : y;
    const T* bias = s.has_bias ? args.in<T>(4) : nullptr;
    TSR_RETURN_IF_ERROR(product->launch({.a = a_codes,
                                         .b = b_codes,
                                         .c = sums,
                                         .bias = shape.has_bias ? bias : nullptr,
                                         .a_scale = args.in<float>(2 + s.a),
                                         .b_scale = args.in<float>(2 + s.b)},
                                        memory + c_bytes, args.stream));
    if (finishes)
      launch_each(args.stream, s.M * s.N,
                  FinishScaled<T>{sums, shape.has_bias ? nullptr : bias, y, s.N, is_padded ? shape.N : s.N});
    return {};
  };
  TSR_ASSIGN_OR_RETURN(PreparedKernel other, plain(spec, s));
  PreparedKernel prepared =
      memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)));
  prepared.products.push_back(product);
  prepared.workspace_bytes = kLine + a.bytes() + b.bytes() + c_bytes + CublasLtMatmul::workspace_bytes(shape);
  prepared.bytes += 2.0 * double(a.bytes() + b.bytes() + c_bytes);
  prepared.flops = flops_of(s);
  // Share of the rate of dense bf16 matmuls, which device_info states: codes run at twice that rate, and
  // reach 0.7 of it.
  prepared.efficiency = 2 * 0.7;
  return Result<PreparedKernel>(std::move(prepared));
}

Result<PreparedKernel> on_tensor_cores(const KernelSpec& spec, const ScaledShape& shape) {
  switch (spec.output_dtype(0)) {
    case DType::kF32: return on_tensor_cores<float>(spec, shape);
    case DType::kBF16: return on_tensor_cores<__nv_bfloat16>(spec, shape);
    case DType::kF16: return on_tensor_cores<__half>(spec, shape);
    default:
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: the result is f32, bf16 or f16", to_text(spec.output_dtype(0))));
  }
}

}  // namespace

// x [M, K], w [K, N] or [N, K], scales, bias [N] -> y [M, N]. When k is split, the shard at offset 0 alone
// adds the bias.
Result<PreparedKernel> prepare_scaled_matmul_lt(const KernelSpec& spec) {
  return on_tensor_cores(spec, matmul_shape(spec));
}
Result<PreparedKernel> prepare_scaled_matmul(const KernelSpec& spec) {
  return plain(spec, matmul_shape(spec));
}

// x [M, K], dy [M, N], scales -> dw [K, N], or [N, K] when trans_w = 1
Result<PreparedKernel> prepare_scaled_matmul_weight_grad_lt(const KernelSpec& spec) {
  return on_tensor_cores(spec, weight_grad_shape(spec));
}
Result<PreparedKernel> prepare_scaled_matmul_weight_grad(const KernelSpec& spec) {
  return plain(spec, weight_grad_shape(spec));
}

}  // namespace tessera::cuda
