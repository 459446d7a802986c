// orthogonalize (graph/ops/orthogonalize.cc): products on plain cores or through cuBLASLt, and passes between them.
#include <algorithm>
#include <array>
#include <memory>

#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/kernels/optimizer_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr int kNormThreads = 256;

// x [M, N], g [S, S], S the lesser of the two: g = x x^T or x^T x, its square, and y += g x or x g.
struct IterationShape {
  int64_t M, N, S, steps;

  explicit IterationShape(const KernelSpec& spec)
      : M(spec.input_dims(0)[0]), N(spec.input_dims(0)[1]), S(std::min(M, N)), steps(spec.i64("steps")) {}
  bool is_wide() const { return M <= N; }
  int64_t elements() const { return M * N; }
  int64_t squares() const { return S * S; }
};

template <class T>
__global__ void __launch_bounds__(kNormThreads)
    inverse_norm_kernel(const T* x, int64_t count, double eps, T* inverse) {
  const Team<kNormThreads> team{static_cast<int>(threadIdx.x)};
  double sum = 0;
  team.each(count, [&](int64_t i) { sum += static_cast<double>(x[i]) * static_cast<double>(x[i]); });
  sum = team.sum(sum);
  const double norm = sqrt(sum);
  if (team.rank == 0) *inverse = static_cast<T>(1 / (norm > eps ? norm : eps));
}

template <class T>
struct ScaleInto {
  const T *x, *factor;
  T constant;
  T* y;
  __device__ void operator()(int64_t i) const { y[i] = (factor != nullptr ? *factor : constant) * x[i]; }
};

template <class T>
struct CombineSquare {
  T* gram;
  const T* square;
  __device__ void operator()(int64_t i) const { gram[i] = T(kCubic) * gram[i] + T(kQuintic) * square[i]; }
};

template <class T>
struct StoreAdded {
  T* y;
  int64_t N;
  bool adds;
  __device__ void operator()(int64_t, int64_t m, int64_t n, T sum) const {
    T& at = y[m * N + n];
    at = adds ? at + sum : sum;
  }
};

template <class T>
class PlainIteration {
 public:
  static Result<PlainIteration> create(const KernelSpec&, const IterationShape& shape) {
    PlainIteration made{shape};
    if (gemm_blocks(made.move_) >= (int64_t{1} << 31))
      return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(made.move_)));
    return made;
  }
  int64_t workspace_bytes() const { return 0; }
  double efficiency() const { return 0.01; }
  std::array<std::shared_ptr<const CublasLtMatmul>, 0> products() const { return {}; }

  Status gram(const LaunchArgs& args, void*, const T* x, T* g) const {
    return launch(args, gram_, x, x, g, false);
  }
  Status square(const LaunchArgs& args, void*, const T* g, T* y) const {
    return launch(args, square_, g, g, y, false);
  }
  Status move(const LaunchArgs& args, void*, const T* left, const T* right, T* y) const {
    return launch(args, move_, left, right, y, true);
  }

 private:
  explicit PlainIteration(const IterationShape& s)
      : gram_(s.is_wide() ? GemmShape{1, s.S, s.S, s.N, 0, s.N, 1, 0, 1, s.N}
                          : GemmShape{1, s.S, s.S, s.M, 0, 1, s.N, 0, s.N, 1}),
        square_{1, s.S, s.S, s.S, 0, s.S, 1, 0, s.S, 1},
        move_(s.is_wide() ? GemmShape{1, s.M, s.N, s.S, 0, s.S, 1, 0, s.N, 1}
                          : GemmShape{1, s.M, s.N, s.S, 0, s.N, 1, 0, s.S, 1}) {}
  static Status launch(const LaunchArgs& args, const GemmShape& shape, const T* a, const T* b, T* c, bool adds) {
    launch_gemm(args.stream, shape, a, b, WholeGemm{}, StoreAdded<T>{c, shape.N, adds});
    return {};
  }

  GemmShape gram_, square_, move_;
};

template <class T>
class LtIteration {
 public:
  static Result<LtIteration> create(const KernelSpec& spec, const IterationShape& s) {
    if (s.elements() == 0)
      return Status(StatusCode::kUnsupported, format("a matrix of {} x {}", s.M, s.N));
    constexpr DType kType = sizeof(T) == 8 ? DType::kF64 : DType::kF32;
    LtIteration made;
    LtChoices choices(spec);
    const LtShape gram{s.S, s.S, s.is_wide() ? s.N : s.M, !s.is_wide(), s.is_wide(), kType, false};
    const LtShape square{s.S, s.S, s.S, false, false, kType, false};
    LtShape move{s.M, s.N, s.S, false, false, kType, false};
    move.adds = true;
    for (auto [shape, product] : {std::pair(gram, 0), std::pair(square, 1), std::pair(move, 2)}) {
      shape.tf32 = allows_tf32(spec);
      made.efficiency_ = lt_efficiency(shape);
      made.workspace_bytes_ = std::max(made.workspace_bytes_, CublasLtMatmul::workspace_bytes(shape));
      TSR_ASSIGN_OR_RETURN(made.products_[static_cast<size_t>(product)],
                           CublasLtMatmul::create(shape, choices.take()));
    }
    return made;
  }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  double efficiency() const { return efficiency_; }
  const std::array<std::shared_ptr<const CublasLtMatmul>, 3>& products() const { return products_; }

  Status gram(const LaunchArgs& args, void* workspace, const T* x, T* g) const {
    return products_[0]->launch({.a = x, .b = x, .c = g}, workspace, args.stream);
  }
  Status square(const LaunchArgs& args, void* workspace, const T* g, T* y) const {
    return products_[1]->launch({.a = g, .b = g, .c = y}, workspace, args.stream);
  }
  Status move(const LaunchArgs& args, void* workspace, const T* left, const T* right, T* y) const {
    return products_[2]->launch({.a = left, .b = right, .c = y, .addend = y}, workspace, args.stream);
  }

 private:
  std::array<std::shared_ptr<const CublasLtMatmul>, 3> products_;
  int64_t workspace_bytes_ = 0;
  double efficiency_ = 0;
};

template <class T, class Products>
class Orthogonalize final : public Kernel {
 public:
  Orthogonalize(const IterationShape& shape, double eps, Products products)
      : shape_(shape), eps_(eps), products_(std::move(products)) {}

  // Matrices, one number, and what the products need, each at a multiple of 256 bytes.
  int64_t workspace_bytes() const {
    return aligned(shape_.elements()) + 2 * aligned(shape_.squares()) + aligned(1) + products_.workspace_bytes();
  }

  Status launch(const LaunchArgs& args) const override {
    if (shape_.elements() == 0) return {};
    auto* at = static_cast<std::byte*>(args.workspace);
    const auto take = [&](int64_t count) {
      T* const taken = reinterpret_cast<T*>(at);
      at += aligned(count);
      return taken;
    };
    T *now = take(shape_.elements()), *const gram = take(shape_.squares()), *const square = take(shape_.squares());
    T* const inverse = take(1);
    // Steps write the result and the workspace in turn, and the last one the result.
    T* next = args.out<T>(0);
    if (shape_.steps % 2 == 0) std::swap(now, next);
    inverse_norm_kernel<T><<<1, kNormThreads, 0, args.stream>>>(args.in<T>(0), shape_.elements(), eps_, inverse);
    launch_each(args.stream, shape_.elements(), ScaleInto<T>{args.in<T>(0), inverse, T(0), now});
    for (int64_t step = 0; step < shape_.steps; ++step) {
      TSR_RETURN_IF_ERROR(products_.gram(args, at, now, gram));
      TSR_RETURN_IF_ERROR(products_.square(args, at, gram, square));
      launch_each(args.stream, shape_.squares(), CombineSquare<T>{gram, square});
      launch_each(args.stream, shape_.elements(), ScaleInto<T>{now, nullptr, T(kLinear), next});
      const bool is_wide = shape_.is_wide();
      TSR_RETURN_IF_ERROR(products_.move(args, at, is_wide ? gram : now, is_wide ? now : gram, next));
      std::swap(now, next);
    }
    return {};
  }

 private:
  static int64_t aligned(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
  }

  IterationShape shape_;
  double eps_;
  Products products_;
};

template <template <class> class Products>
Result<PreparedKernel> prepare_iteration(const KernelSpec& spec) {
  const auto prepare = [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const IterationShape shape(spec);
    TSR_ASSIGN_OR_RETURN(Products<T> products, Products<T>::create(spec, shape));
    const double efficiency = products.efficiency();
    std::vector<std::shared_ptr<const CublasLtMatmul>> made(products.products().begin(), products.products().end());
    auto kernel = std::make_unique<Orthogonalize<T, Products<T>>>(shape, spec.f64("eps"), std::move(products));
    const int64_t workspace = shape.elements() == 0 ? 0 : kernel->workspace_bytes();
    PreparedKernel prepared = memory_bound(spec, std::move(kernel));
    prepared.products = std::move(made);
    prepared.workspace_bytes = workspace;
    const double s = double(shape.S), l = double(std::max(shape.M, shape.N));
    prepared.flops = double(shape.steps) * (4 * s * s * l + 2 * s * s * s);
    prepared.efficiency = efficiency;
    return std::move(prepared);
  };
  if (spec.input_dtype(0) == DType::kF64) return prepare(double{});
  if (spec.input_dtype(0) == DType::kF32) return prepare(float{});
  return Status(StatusCode::kUnsupported, format("a matrix in {}: this kernel takes f32 or f64",
                                                 to_text(spec.input_dtype(0))));
}

}  // namespace

// x [M, N] -> y [M, N]
Result<PreparedKernel> prepare_orthogonalize(const KernelSpec& spec) {
  return prepare_iteration<PlainIteration>(spec);
}
Result<PreparedKernel> prepare_orthogonalize_lt(const KernelSpec& spec) {
  return prepare_iteration<LtIteration>(spec);
}

}  // namespace tessera::cuda
