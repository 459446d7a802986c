// linear_cross_entropy: head and cross entropy in chunks of rows. The logits of a chunk are in the workspace
// and become their gradient in place; none are kept. All these ops share the passes over chunks; `Head`
// computes matmuls and rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/product_operand.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/softmax_rows.h"

namespace tessera::cpu {

namespace {

// x [rows, C], w [V, C].
struct HeadShape {
  int64_t rows = 0, V = 0, C = 0;

  // Rows of a chunk. Every matmul packs w or dw again, which a few hundred rows make up for. At most 64 MiB
  // of logits (f32), unless 32 rows are more.
  int64_t chunk() const {
    constexpr int64_t kElements = int64_t{16} << 20;
    return std::min(rows, std::clamp<int64_t>(kElements / std::max<int64_t>(V, 1) / 8 * 8, 32, 512));
  }
};

HeadShape shape_of(const KernelSpec& spec) {
  const Rows x = rows_of(spec.input_dims(0));
  return {x.count, spec.input_dims(1)[0], x.cols};
}

// Reference head: plain loops that sum in double.
template <class T>
struct PlainHead {
  using Real = T;
  HeadShape shape;
  ProductOperand operand;

  int64_t workspace_bytes() const { return 0; }

  // l [rows, V] = x w^T
  void logits(const T* x, const T* w, int64_t rows, T* l, void*, const Pool& pool) const {
    pool.parallel_for(rows, [&](int64_t r) {
      for (int64_t v = 0; v < shape.V; ++v) {
        double sum = 0;
        for (int64_t c = 0; c < shape.C; ++c)
          sum += operand(x[r * shape.C + c]) * operand(w[v * shape.C + c]);
        l[r * shape.V + v] = T(sum);
      }
    });
  }
  // dx [rows, C] = g w
  void input_gradient(const T* g, const T* w, int64_t rows, T* dx, void*, const Pool& pool) const {
    pool.parallel_for(rows, [&](int64_t r) {
      for (int64_t c = 0; c < shape.C; ++c) {
        double sum = 0;
        for (int64_t v = 0; v < shape.V; ++v)
          sum += operand(g[r * shape.V + v]) * operand(w[v * shape.C + c]);
        dx[r * shape.C + c] = T(sum);
      }
    });
  }
  // dw [V, C] = g^T x, added to what is there
  void add_weight_gradient(const T* g, const T* x, int64_t rows, bool first, T* dw, void*,
                           const Pool& pool) const {
    pool.parallel_for(shape.V, [&](int64_t v) {
      for (int64_t c = 0; c < shape.C; ++c) {
        double sum = first ? 0 : double(dw[v * shape.C + c]);
        for (int64_t r = 0; r < rows; ++r) sum += operand(g[r * shape.V + v]) * operand(x[r * shape.C + c]);
        dw[v * shape.C + c] = T(sum);
      }
    });
  }

  T max(const T* l) const {
    T best = -std::numeric_limits<T>::infinity();
    for (int64_t v = 0; v < shape.V; ++v)
      if (l[v] > best || std::isnan(l[v])) {
        best = l[v];
        if (std::isnan(best)) break;
      }
    return best;
  }
  // exp(x - m), 0 for x = -inf also where the whole row is -inf.
  static double exp_above(T x, T m) {
    return x == -std::numeric_limits<T>::infinity() ? 0 : std::exp(double(x) - double(m));
  }
  T sum(const T* l, T m) const {
    double s = 0;
    for (int64_t v = 0; v < shape.V; ++v) s += exp_above(l[v], m);
    return T(s);
  }
  void gradient(T* l, T m, T s, T dloss, int64_t label, bool counts) const {
    for (int64_t v = 0; v < shape.V; ++v)
      l[v] = counts ? T((exp_above(l[v], m) / double(s) - (v == label ? 1 : 0)) * double(dloss)) : T(0);
  }
};

// Fast head: the packed Gemm and vectorised rows.
struct PackedHead {
  using Real = float;
  HeadShape shape;
  bool tf32;

  Gemm logits_gemm(int64_t rows) const {
    return {
        .m = rows, .n = shape.V, .k = shape.C, .a_row = shape.C, .b_row = 1, .b_col = shape.C, .tf32 = tf32};
  }
  Gemm input_gemm(int64_t rows) const {
    return {.m = rows, .n = shape.C, .k = shape.V, .a_row = shape.V, .b_row = shape.C, .tf32 = tf32};
  }
  Gemm weight_gemm(int64_t rows, bool first) const {
    return {.m = shape.V,
            .n = shape.C,
            .k = rows,
            .a_row = 1,
            .a_col = shape.V,
            .b_row = shape.C,
            .adds = !first,
            .tf32 = tf32};
  }
  int64_t workspace_bytes() const {
    int64_t bytes = 0;
    const int64_t last = shape.rows % shape.chunk();
    for (const int64_t rows : {shape.chunk(), last == 0 ? shape.chunk() : last})
      for (const Gemm& gemm :
           {logits_gemm(rows), input_gemm(rows), weight_gemm(rows, true), weight_gemm(rows, false)})
        bytes = std::max(bytes, gemm_workspace_bytes(gemm));
    return bytes;
  }

  void logits(const float* x, const float* w, int64_t rows, float* l, void* workspace,
              const Pool& pool) const {
    run_gemm(logits_gemm(rows), {.a = x, .b = w, .c = l, .workspace = workspace}, pool);
  }
  void input_gradient(const float* g, const float* w, int64_t rows, float* dx, void* workspace,
                      const Pool& pool) const {
    run_gemm(input_gemm(rows), {.a = g, .b = w, .c = dx, .workspace = workspace}, pool);
  }
  void add_weight_gradient(const float* g, const float* x, int64_t rows, bool first, float* dw,
                           void* workspace, const Pool& pool) const {
    run_gemm(weight_gemm(rows, first), {.a = g, .b = x, .c = dw, .workspace = workspace}, pool);
  }
  float max(const float* l) const { return softmax_row_max(l, shape.V); }
  float sum(const float* l, float m) const { return softmax_row_sum(l, shape.V, m); }
  void gradient(float* l, float m, float s, float dloss, int64_t label, bool counts) const {
    softmax_row_gradient(l, shape.V, m, s, dloss, label, counts);
  }
};

// kTokens and kTokensGrad: the losses of rows, apart (linear_token_losses).
enum class Pass { kMax, kSums, kLoss, kGrad, kGradFinish, kTokens, kTokensGrad };

constexpr bool makes_loss(Pass pass) { return pass == Pass::kLoss || pass == Pass::kGrad; }
constexpr bool reads_statistics(Pass pass) { return pass == Pass::kGradFinish || pass == Pass::kTokensGrad; }
constexpr bool makes_gradient(Pass pass) { return pass == Pass::kGrad || reads_statistics(pass); }

// Workspace: matmul scratch, then the logits of a chunk, then the losses of all rows. The losses, always
// written to the end, come last, so that a run touches all of the planned arena.
template <class Head, Pass pass>
struct Workspace {
  int64_t logits_at, losses_at, bytes;

  explicit Workspace(const Head& head) {
    constexpr int64_t kUnit = 64;
    const auto aligned = [](int64_t at) { return (at + kUnit - 1) / kUnit * kUnit; };
    const HeadShape& shape = head.shape;
    logits_at = aligned(head.workspace_bytes());
    bytes = logits_at + shape.chunk() * shape.V * static_cast<int64_t>(sizeof(typename Head::Real));
    losses_at = aligned(bytes);
    if (makes_loss(pass)) bytes = losses_at + shape.rows * static_cast<int64_t>(sizeof(double));
  }
};

template <class Head, Pass pass>
class ChunkedHead final : public Kernel {
 public:
  using T = typename Head::Real;
  ChunkedHead(Head head, FactorIndex v, bool has_dw)
      : head_(head), v_(v), workspace_(head), has_dw_(has_dw) {}

  int64_t workspace_bytes() const { return workspace_.bytes; }

  void launch(const LaunchArgs& args) const override {
    const HeadShape& shape = head_.shape;
    char* workspace = static_cast<char*>(args.workspace);
    T* logits = reinterpret_cast<T*>(workspace + workspace_.logits_at);
    double* losses = reinterpret_cast<double*>(workspace + workspace_.losses_at);
    const T *x = args.in<T>(0), *w = args.in<T>(1);
    T* dw = has_dw_ ? args.out<T>(pass == Pass::kGrad ? 2 : 1) : nullptr;
    for (int64_t first = 0; first < shape.rows; first += shape.chunk()) {
      const int64_t rows = std::min(shape.chunk(), shape.rows - first);
      head_.logits(x + first * shape.C, w, rows, logits, workspace, args.pool);
      args.pool.parallel_ranges(rows, row_grain(shape.V), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) visit(args, first + r, logits + r * shape.V, losses);
      });
      if constexpr (makes_gradient(pass)) {
        head_.input_gradient(logits, w, rows, args.out<T>(0) + first * shape.C, workspace, args.pool);
        if (has_dw_)
          head_.add_weight_gradient(logits, x + first * shape.C, rows, first == 0, dw, workspace, args.pool);
      }
    }
    if (has_dw_ && shape.rows == 0) std::fill_n(dw, shape.V * shape.C, T(0));
    if constexpr (makes_loss(pass)) {
      double sum = 0;
      for (int64_t r = 0; r < shape.rows; ++r) sum += losses[r];
      *args.out<T>(pass == Pass::kGrad ? 1 : 0) = T(sum * double(*args.in<T>(3)));
    }
  }

 private:
  // Visits row `r` of the whole input, with its logits at `l`.
  void visit(const LaunchArgs& args, int64_t r, T* l, double* losses) const {
    const T m = pass == Pass::kSums || reads_statistics(pass) ? args.in<T>(3)[r] : head_.max(l);
    if constexpr (pass == Pass::kMax) {
      args.out<T>(0)[r] = m;
      return;
    } else {
      const T s = reads_statistics(pass) ? args.in<T>(4)[r] : head_.sum(l, m);
      const int32_t label = args.in<int32_t>(2)[r];
      const int64_t at = v_.to_local(label);
      const T picked = at >= 0 && at < head_.shape.V ? l[at] : T(0);
      if constexpr (pass == Pass::kSums) {
        args.out<T>(0)[r] = s;
        args.out<T>(1)[r] = picked;
      }
      const auto loss = [&] { return label < 0 ? 0 : std::log(double(s)) + double(m) - double(picked); };
      if constexpr (makes_loss(pass)) losses[r] = loss();
      if constexpr (pass == Pass::kTokens) {
        args.out<T>(0)[r] = T(loss());
        args.out<T>(1)[r] = m;
        args.out<T>(2)[r] = s;
      }
      if constexpr (makes_gradient(pass)) {
        constexpr int kScale = pass == Pass::kGrad ? 3 : 5;
        const T dloss =
            pass == Pass::kTokensGrad ? args.in<T>(5)[r] : *args.in<T>(kScale) * *args.in<T>(kScale + 1);
        head_.gradient(l, m, s, dloss, at, label >= 0);
      }
    }
  }

  const Head head_;
  const FactorIndex v_;
  const Workspace<Head, pass> workspace_;
  const bool has_dw_;
};

template <Pass pass, class Head>
PreparedKernel chunked(const KernelSpec& spec, Head head) {
  const bool has_dw = makes_gradient(pass) && spec.i64("weight_grad") != 0;
  auto kernel = std::make_unique<ChunkedHead<Head, pass>>(head, FactorIndex(spec.factor('v')), has_dw);
  const HeadShape& shape = head.shape;
  const double logits = double(shape.rows) * double(shape.V);
  const double products = !makes_gradient(pass) ? 1 : has_dw ? 3 : 2;
  const int64_t workspace = kernel->workspace_bytes();
  return reference_kernel(spec, std::move(kernel), logits * (2 * products * double(shape.C) + 20), workspace);
}

template <Pass pass>
Result<PreparedKernel> reference(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    return chunked<pass>(spec, PlainHead<decltype(zero)>{shape_of(spec), ProductOperand(spec)});
  });
}

template <Pass pass>
Result<PreparedKernel> packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const HeadShape shape = shape_of(spec);
  if (shape.rows == 0 || shape.V == 0 || shape.C == 0)
    return Status(StatusCode::kUnsupported, format("a head of {} x {} x {}", shape.rows, shape.V, shape.C));
  PreparedKernel prepared = chunked<pass>(spec, PackedHead{shape, spec.i64("allow_tf32") == 1});
  prepared.efficiency = 0.8;
  return prepared;
}

// log s + m - picked of row r of labels, m, s, picked [R], operands 2 to 5; 0 where its label is negative.
template <class T>
double row_loss(const LaunchArgs& args, int64_t r) {
  if (args.in<int32_t>(2)[r] < 0) return 0;
  return std::log(double(args.in<T>(4)[r])) + double(args.in<T>(3)[r]) - double(args.in<T>(5)[r]);
}

}  // namespace

// x [R, C], w [V, C], labels [R], scale [] -> loss []
Result<PreparedKernel> prepare_linear_cross_entropy(const KernelSpec& spec) {
  return reference<Pass::kLoss>(spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_packed(const KernelSpec& spec) {
  return packed<Pass::kLoss>(spec);
}

// x [R, C], w [V, C], labels [R], scale, dloss [] -> dx [R, C], loss [], dw [V, C]
Result<PreparedKernel> prepare_linear_cross_entropy_grad(const KernelSpec& spec) {
  return reference<Pass::kGrad>(spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_grad_packed(const KernelSpec& spec) {
  return packed<Pass::kGrad>(spec);
}

// x [R, C], w [V, C] -> m [R]
Result<PreparedKernel> prepare_linear_row_max(const KernelSpec& spec) { return reference<Pass::kMax>(spec); }
Result<PreparedKernel> prepare_linear_row_max_packed(const KernelSpec& spec) {
  return packed<Pass::kMax>(spec);
}

// x [R, C], w [V, C], labels, m [R] -> s, picked [R]
Result<PreparedKernel> prepare_linear_row_sums(const KernelSpec& spec) {
  return reference<Pass::kSums>(spec);
}
Result<PreparedKernel> prepare_linear_row_sums_packed(const KernelSpec& spec) {
  return packed<Pass::kSums>(spec);
}

// x [R, C], w [V, C], labels, m, s [R], scale, dloss [] -> dx [R, C], dw [V, C]
Result<PreparedKernel> prepare_linear_cross_entropy_grad_finish(const KernelSpec& spec) {
  return reference<Pass::kGradFinish>(spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_grad_finish_packed(const KernelSpec& spec) {
  return packed<Pass::kGradFinish>(spec);
}

// labels, m, s, picked [R], scale [] -> loss []: on the shard of v that begins at 0, else 0
Result<PreparedKernel> prepare_linear_cross_entropy_finish(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t rows = spec.input_elements(2);
    const bool has_loss = spec.factor('v').begin[0] == 0;
    auto launch = [=](const LaunchArgs& args) {
      double sum = 0;
      for (int64_t r = 0; r < rows && has_loss; ++r) sum += row_loss<T>(args, r);
      *args.out<T>(0) = T(sum * double(*args.in<T>(6)));
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows));
  });
}

// x [R, C], w [V, C], labels [R] -> loss, m, s [R]
Result<PreparedKernel> prepare_linear_token_losses(const KernelSpec& spec) {
  return reference<Pass::kTokens>(spec);
}
Result<PreparedKernel> prepare_linear_token_losses_packed(const KernelSpec& spec) {
  return packed<Pass::kTokens>(spec);
}

// x [R, C], w [V, C], labels, m, s, dloss [R] -> dx [R, C], dw [V, C]
Result<PreparedKernel> prepare_linear_token_losses_grad(const KernelSpec& spec) {
  return reference<Pass::kTokensGrad>(spec);
}
Result<PreparedKernel> prepare_linear_token_losses_grad_packed(const KernelSpec& spec) {
  return packed<Pass::kTokensGrad>(spec);
}

// labels, m, s, picked [R] -> loss [R]: on the shard of v that begins at 0, else 0
Result<PreparedKernel> prepare_linear_token_losses_finish(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t rows = spec.input_elements(2);
    const bool has_loss = spec.factor('v').begin[0] == 0;
    auto launch = [=](const LaunchArgs& args) {
      for (int64_t r = 0; r < rows; ++r) args.out<T>(0)[r] = has_loss ? T(row_loss<T>(args, r)) : T(0);
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows));
  });
}

}  // namespace tessera::cpu
