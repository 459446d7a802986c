// Matmuls through cuBLASLt. Bias and gelu are epilogues where the library has them, else passes of their own.
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/kernels/matmul_finish.cuh"

namespace tessera::cuda {

namespace {

// value + bias -> the value before the activation, and the value after it; either may overwrite the input.
template <class T>
struct Finish {
  const T* bias;  // null for none
  T *pre, *y;     // pre: null if not requested
  int64_t N;
  MatmulActivation activation;
  __device__ void begin() {}
  __device__ void operator()(int64_t i, const Wide<T>* x, Wide<T>* out) const {
    Wide<T> value = x[0];
    if (bias != nullptr) value += widen(bias[i % N]);
    if (pre != nullptr) pre[i] = narrow<T>(value);
    out[0] = activate(activation, value);
  }
};

// A matmul's result and the value before gelu -> the gradient there, in place.
template <class T>
struct TimesGeluDerivative {
  __device__ void begin() {}
  __device__ void operator()(int64_t, const Wide<T>* x, Wide<T>* out) const {
    out[0] = x[0] * gelu_tanh_derivative(x[1]);
  }
};

}  // namespace

// x [M, K], w [K, N] or [N, K], bias [N] -> y [M, N], pre [M, N]. When k is split, the shard at offset 0
// alone adds the bias.
Result<PreparedKernel> prepare_matmul_lt(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const MatmulActivation activation, matmul_activation(spec.string("activation")));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool trans = spec.i64("trans_w") == 1, has_pre = spec.output_count() == 2;
    const bool has_bias = spec.input_count() == 3 && spec.factor('k').begin[0] == 0;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    if (M == 0 || N == 0 || K == 0)
      return Status(StatusCode::kUnsupported, format("a product of {} x {} x {}", M, N, K));
    const bool is_gelu = activation == MatmulActivation::kGelu;
    const std::string_view algorithm = LtChoices(spec).take();
    // Drop one epilogue after another, until the library has an algorithm.
    LtShape plain{M, N, K, false, trans, spec.input_dtype(0), false};
    plain.tf32 = allows_tf32(spec);
    LtShape shape = plain;
    Result<std::shared_ptr<const CublasLtMatmul>> product = Status(StatusCode::kUnsupported, "");
    for (const bool gelu : {is_gelu, false}) {
      for (const bool bias : {has_bias, false}) {
        if (product.ok() || product.status().code() != StatusCode::kUnsupported || (gelu && bias != has_bias))
          continue;
        shape = plain;
        shape.has_bias = bias;
        shape.has_gelu = gelu;
        shape.has_pre = gelu && has_pre;
        // The cast: else nvcc warns that the assignment's result is discarded.
        static_cast<void>(product = CublasLtMatmul::create(shape, algorithm));
      }
    }
    if (!product.ok()) return product.status();
    const bool bias_follows = has_bias && !shape.has_bias;
    const bool finishes =
        !shape.has_gelu && (bias_follows || has_pre || activation != MatmulActivation::kNone);
    if (!has_bias && !has_pre && activation == MatmulActivation::kNone)
      return lt_prepared(spec, make_product_kernel(shape, product.value(), algorithm.empty()), shape,
                         product.value());
    return lt_prepared(spec, make_kernel([=, product = product.value()](const LaunchArgs& args) -> Status {
                         const T* bias = has_bias ? args.in<T>(2) : nullptr;
                         T *y = args.out<T>(0), *pre = has_pre ? args.out<T>(1) : nullptr;
                         T* sums = has_pre && !shape.has_gelu ? pre : y;
                         TSR_RETURN_IF_ERROR(product->launch({.a = args.inputs[0],
                                                              .b = args.inputs[1],
                                                              .c = sums,
                                                              .bias = shape.has_bias ? bias : nullptr,
                                                              .pre = shape.has_pre ? pre : nullptr},
                                                             args.workspace, args.stream));
                         if (finishes) {
                           Finish<T> finish{};
                           finish.bias = bias_follows ? bias : nullptr;
                           finish.pre = bias_follows ? pre : nullptr;  // else the matmul itself wrote it
                           finish.N = N;
                           finish.activation = activation;
                           launch_map<T, 1, 1>(args.stream, M * N, finish, {{sums}, {y}});
                         }
                         return {};
                       }),
                       shape, product.value());
  });
}

// x [M, K], w [K, N] or [N, K], addend [M, N], bias [N] -> y [M, N]. When k is split, the shard at offset 0
// alone adds addend and bias.
Result<PreparedKernel> prepare_matmul_add_lt(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool adds = spec.factor('k').begin[0] == 0, has_bias = adds && spec.input_count() == 4;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    if (M == 0 || N == 0 || K == 0)
      return Status(StatusCode::kUnsupported, format("a product of {} x {} x {}", M, N, K));
    const std::string_view algorithm = LtChoices(spec).take();
    LtShape shape{M, N, K, false, spec.i64("trans_w") == 1, spec.input_dtype(0), has_bias};
    shape.adds = adds;
    shape.tf32 = allows_tf32(spec);
    Result<std::shared_ptr<const CublasLtMatmul>> product = CublasLtMatmul::create(shape, algorithm);
    if (has_bias && !product.ok() && product.status().code() == StatusCode::kUnsupported) {
      shape.has_bias = false;
      static_cast<void>(product = CublasLtMatmul::create(shape, algorithm));
    }
    if (!product.ok()) return product.status();
    const bool bias_follows = has_bias && !shape.has_bias;
    return lt_prepared(
        spec, make_kernel([=, product = product.value()](const LaunchArgs& args) -> Status {
          const T* bias = has_bias ? args.in<T>(3) : nullptr;
          TSR_RETURN_IF_ERROR(product->launch({.a = args.inputs[0],
                                               .b = args.inputs[1],
                                               .c = args.outputs[0],
                                               .bias = shape.has_bias ? bias : nullptr,
                                               .addend = adds ? args.inputs[2] : nullptr},
                                              args.workspace, args.stream));
          if (bias_follows) {
            Finish<T> finish{};
            finish.bias = bias;
            finish.N = N;
            launch_map<T, 1, 1>(args.stream, M * N, finish, {{args.outputs[0]}, {args.outputs[0]}});
          }
          return {};
        }),
        shape, product.value());
  });
}

// dy [M, K], w [K, N] or [N, K], pre [M, N] -> dpre [M, N]
Result<PreparedKernel> prepare_matmul_gelu_grad_lt(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    if (M == 0 || N == 0 || K == 0)
      return Status(StatusCode::kUnsupported, format("a product of {} x {} x {}", M, N, K));
    const std::string_view algorithm = LtChoices(spec).take();
    LtShape shape{M, N, K, false, spec.i64("trans_w") == 1, spec.input_dtype(0), false};
    shape.has_gelu_grad = true;
    Result<std::shared_ptr<const CublasLtMatmul>> product = CublasLtMatmul::create(shape, algorithm);
    if (!product.ok() && product.status().code() == StatusCode::kUnsupported) {
      shape.has_gelu_grad = false;
      static_cast<void>(product = CublasLtMatmul::create(shape, algorithm));
    }
    if (!product.ok()) return product.status();
    const bool finishes = !shape.has_gelu_grad;
    return lt_prepared(spec, make_kernel([=, product = product.value()](const LaunchArgs& args) -> Status {
                         // cuBLASLt only reads `pre` here.
                         void* pre = const_cast<void*>(args.inputs[2]);
                         TSR_RETURN_IF_ERROR(product->launch({.a = args.inputs[0],
                                                              .b = args.inputs[1],
                                                              .c = args.outputs[0],
                                                              .pre = finishes ? nullptr : pre},
                                                             args.workspace, args.stream));
                         if (finishes)
                           launch_map<T, 2, 1>(args.stream, M * N, TimesGeluDerivative<T>{},
                                               {{args.outputs[0], pre}, {args.outputs[0]}});
                         return {};
                       }),
                       shape, product.value());
  });
}

// x [M, K], dy [M, N] -> dw [K, N], or [N, K] when trans_w = 1
Result<PreparedKernel> prepare_matmul_weight_grad_lt(const KernelSpec& spec) {
  // dw^T = dy^T x is the same matmul with the operands exchanged.
  const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
  const int64_t M = spec.input_dims(left).back(), N = spec.input_dims(right).back();
  int64_t K = 1;
  for (const int64_t extent : spec.input_dims(0).first(spec.input_dims(0).size() - 1)) K *= extent;
  if (M == 0 || N == 0 || K == 0)
    return Status(StatusCode::kUnsupported, format("a product of {} x {} x {}", M, N, K));
  LtShape shape{M, N, K, true, false, spec.input_dtype(0), false};
  shape.tf32 = allows_tf32(spec);
  shape.wide_c = spec.i64("wide") == 1;
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const CublasLtMatmul> product,
                       CublasLtMatmul::create(shape, LtChoices(spec).take()));
  return lt_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                       return product->launch(
                           {.a = args.inputs[left], .b = args.inputs[right], .c = args.outputs[0]},
                           args.workspace, args.stream);
                     }),
                     shape, product);
}

}  // namespace tessera::cuda
