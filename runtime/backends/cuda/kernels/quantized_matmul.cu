// quantized_matmul of many rows with weights in 16 bits: the weight is widened to the type of x, some of its rows
// at a time, and multiplied by cuBLASLt. Also the reference.
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/quantized_weight.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Widens chunk i of the rows from `w` on to T.
template <class T, class Weight>
struct WidenChunk {
  const uint8_t* w;
  T* out;
  int64_t K, row_bytes;
  __device__ void operator()(int64_t i) const {
    const int64_t chunks = K / Weight::kNumbers, n = i / chunks, c = i % chunks;
    float weight[Weight::kNumbers];
    Weight::widen(reinterpret_cast<const typename Weight::Chunk*>(w + n * row_bytes)[c], weight);
    constexpr int kVec = 16 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int j = 0; j < Weight::kNumbers; j += kVec) {
      Wide<T> part[kVec];
#pragma unroll
      for (int k = 0; k < kVec; ++k) part[k] = weight[j + k];
      store_pack(out + n * K + c * Weight::kNumbers + j, part);
    }
  }
};

template <class T>
struct AddBias {
  const T* bias;
  T* y;
  int64_t N;
  __device__ void operator()(int64_t i) const { y[i] = narrow<T>(widen(y[i]) + widen(bias[i % N])); }
};

// One result a thread, k ascending.
template <class T, class Weight>
struct SumOfProducts {
  const T* x;
  const uint8_t* w;
  const T* bias;
  T* y;
  int64_t N, K, row_bytes;
  __device__ void operator()(int64_t i) const {
    const int64_t m = i / N, n = i % N;
    Wide<T> sum = bias == nullptr ? Wide<T>(0) : widen(bias[n]);
    for (int64_t k = 0; k < K; ++k)
      sum += widen(x[m * K + k]) * static_cast<Wide<T>>(Weight::number(w + n * row_bytes, k));
    y[i] = narrow<T>(sum);
  }
};

constexpr int64_t kStripBytes = int64_t{32} << 20;  // of the widened weight: most of it stays in the L2 cache

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]
Result<PreparedKernel> prepare_quantized_matmul_lt(const KernelSpec& spec) {
  const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_weight(shape.dtype, [&](auto weight) -> Result<PreparedKernel> {
      using Weight = decltype(weight);
      if (shape.M < 1 || shape.N < 1 || shape.K < 1 || shape.K % Weight::kNumbers != 0)
        return Status(StatusCode::kUnsupported, format("{} x {} x {}: wanted rows of a multiple of {}", shape.M,
                                                       shape.N, shape.K, Weight::kNumbers));
      const int64_t row = shape.K * static_cast<int64_t>(sizeof(T));
      // Strips of a multiple of 64 columns of y keep its rows aligned for the library.
      const int64_t most = kStripBytes / row / 64 * 64;
      const int64_t columns = std::min(shape.N, most < 64 ? int64_t{64} : most);
      const int64_t last = shape.N % columns == 0 ? columns : shape.N % columns;
      // The bias is an epilogue, added before the sum is rounded, where the library has that.
      LtShape strip{shape.M, columns, shape.K, false, true, spec.input_dtype(0), shape.bias >= 0};
      strip.c_row = shape.N;
      LtChoices choices(spec);
      const std::string_view algorithm = choices.take();
      Result<std::shared_ptr<const CublasLtMatmul>> first = CublasLtMatmul::create(strip, algorithm);
      if (!first.ok() && first.status().code() == StatusCode::kUnsupported && strip.has_bias) {
        strip.has_bias = false;
        static_cast<void>(first = CublasLtMatmul::create(strip, algorithm));
      }
      if (!first.ok()) return first.status();
      const std::shared_ptr<const CublasLtMatmul> product = std::move(first).value();
      const bool fused = strip.has_bias;
      int64_t product_bytes = CublasLtMatmul::workspace_bytes(strip);
      std::shared_ptr<const CublasLtMatmul> last_product = product;
      std::vector<std::shared_ptr<const CublasLtMatmul>> products = {product};
      if (last != columns) {
        strip.N = last;
        TSR_ASSIGN_OR_RETURN(last_product, CublasLtMatmul::create(strip, choices.take()));
        products.push_back(last_product);
        product_bytes = std::max(product_bytes, CublasLtMatmul::workspace_bytes(strip));
      }
      TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_quantized_matmul(spec));
      auto launch = [=](const LaunchArgs& args) -> Status {
        auto* widened = static_cast<T*>(args.workspace);
        const auto* w = args.in<uint8_t>(1);
        const int64_t row_bytes = Weight::row_bytes(shape.K);
        for (int64_t n0 = 0; n0 < shape.N; n0 += columns) {
          const bool is_last = n0 + columns >= shape.N;
          const int64_t count = is_last ? last : columns;
          launch_each(args.stream, count * (shape.K / Weight::kNumbers),
                      WidenChunk<T, Weight>{w + n0 * row_bytes, widened, shape.K, row_bytes});
          TSR_RETURN_IF_ERROR((is_last ? last_product : product)
                                  ->launch({.a = args.in<T>(0),
                                            .b = widened,
                                            .c = args.out<T>(0) + n0,
                                            .bias = fused ? args.in<T>(shape.bias) + n0 : nullptr},
                                           reinterpret_cast<uint8_t*>(args.workspace) + columns * row,
                                           args.stream));
        }
        if (shape.bias >= 0 && !fused)
          launch_each(args.stream, shape.M * shape.N,
                      AddBias<T>{args.in<T>(shape.bias), args.out<T>(0), shape.N});
        return {};
      };
      PreparedKernel prepared =
          memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)), 0);
      prepared.workspace_bytes = columns * row + product_bytes;
      prepared.bytes += 2.0 * double(shape.N) * double(row);  // the widened weight, written and read
      prepared.flops = 2.0 * double(shape.M) * double(shape.N) * double(shape.K);
      prepared.efficiency = sizeof(T) > 2 ? 0.05 : 0.7;
      prepared.products = std::move(products);
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

Result<PreparedKernel> prepare_quantized_matmul(const KernelSpec& spec) {
  if (spec.string("activations") != "f32")
    return Status(StatusCode::kUnsupported, "this kernel multiplies activations as they are");
  const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_weight(shape.dtype, [&](auto weight) -> Result<PreparedKernel> {
      using Weight = decltype(weight);
      PreparedKernel prepared = memory_bound(
          spec, make_kernel([=](const LaunchArgs& args) {
            launch_each(args.stream, shape.M * shape.N,
                        SumOfProducts<T, Weight>{args.in<T>(0), args.in<uint8_t>(1),
                                                 shape.bias < 0 ? nullptr : args.in<T>(shape.bias),
                                                 args.out<T>(0), shape.N, shape.K,
                                                 Weight::row_bytes(shape.K)});
          }));
      prepared.flops = 2.0 * double(shape.M) * double(shape.N) * double(shape.K);
      prepared.efficiency = 0.01;
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

}  // namespace tessera::cuda
