// linear_cross_entropy: head and cross entropy in chunks of rows. A matmul leaves the logits of a chunk in
// the workspace. One kernel reads each row for its statistics, and once more, out of the L2 cache, to replace
// it by its gradient; two matmuls read that. Rows of logits are padded to 16 bytes, so that the matmuls run
// at full rate whatever the vocabulary; dw is summed in f32 over the chunks.
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/head_products.cuh"
#include "runtime/backends/cuda/kernels/head_row.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"

namespace tessera::cuda {

namespace {

// loss = scale * sum of the rows' losses, in double.
template <class W>
struct LossSum {
  const W *losses, *scale;
  W* loss;
  int64_t rows;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t) const {
    double sum = 0;
    team.each(rows, [&](int64_t r) { sum += static_cast<double>(losses[r]); });
    sum = team.sum(sum);
    if (team.rank == 0) *loss = static_cast<W>(sum * static_cast<double>(*scale));
  }
};

// Workspace: matmul scratch; dw in f32 where it is summed and its type is narrower; the logits of a chunk;
// the losses of all rows.
template <class T>
struct Layout {
  int64_t dw_at, logits_at, losses_at, bytes;

  Layout(const HeadShape& shape, int64_t products_bytes, bool wide_dw, bool losses) {
    const auto aligned = [](int64_t at) { return (at + 255) / 256 * 256; };
    dw_at = aligned(products_bytes);
    logits_at = aligned(dw_at + (wide_dw ? shape.V * shape.C * static_cast<int64_t>(sizeof(Wide<T>)) : 0));
    bytes = logits_at + shape.chunk() * shape.ld * static_cast<int64_t>(sizeof(T));
    losses_at = aligned(bytes);
    if (losses) bytes = losses_at + shape.rows * static_cast<int64_t>(sizeof(Wide<T>));
  }
};

template <class T, class Products>
class ChunkedHead final : public Kernel {
 public:
  using W = Wide<T>;
  ChunkedHead(HeadPass pass, const HeadShape& shape, Products products, const FactorIndex& v, bool has_dw)
      : pass_(pass),
        shape_(shape),
        products_(std::move(products)),
        v_(v),
        has_dw_(has_dw),
        layout_(shape, products_.workspace_bytes(), wide_dw(), makes_loss(pass)) {}

  int64_t workspace_bytes() const { return layout_.bytes; }

  Status launch(const LaunchArgs& args) const override {
    char* workspace = static_cast<char*>(args.workspace);
    T* logits = reinterpret_cast<T*>(workspace + layout_.logits_at);
    W* losses = reinterpret_cast<W*>(workspace + layout_.losses_at);
    const T *x = args.in<T>(0), *w = args.in<T>(1);
    T* dw = has_dw_ ? args.out<T>(pass_ == HeadPass::kGrad ? 2 : 1) : nullptr;
    W* wide = reinterpret_cast<W*>(workspace + layout_.dw_at);
    void* sums = wide_dw() ? static_cast<void*>(wide) : dw;
    for (int64_t first = 0; first < shape_.rows; first += shape_.chunk()) {
      const int64_t left = shape_.rows - first, rows = left < shape_.chunk() ? left : shape_.chunk();
      const T* of_chunk = x + first * shape_.C;
      TSR_RETURN_IF_ERROR(products_.logits(args, of_chunk, w, rows, logits));
      // For a small vocabulary (bytes, say) a warp computes a row.
      if (const int64_t packs = shape_.V / HeadRow<T>::kVec; packs > HeadRow<T>::kTeam)
        launch_teams<HeadRow<T>::kTeam>(args.stream, rows, row_of(args, first, logits, losses));
      else
        launch_rows(args.stream, rows, packs, row_of(args, first, logits, losses));
      if (!makes_gradient(pass_)) continue;
      TSR_RETURN_IF_ERROR(products_.dx(args, logits, w, rows, args.out<T>(0) + first * shape_.C));
      if (has_dw_) TSR_RETURN_IF_ERROR(products_.dw(args, logits, of_chunk, rows, first == 0, sums));
    }
    if (has_dw_ && shape_.rows == 0)
      TSR_RETURN_IF_ERROR(
          from_cuda(cudaMemsetAsync(dw, 0, static_cast<size_t>(shape_.V * shape_.C) * sizeof(T), args.stream),
                    "cudaMemset"));
    else if (wide_dw())
      launch_map<T, 0, 1, 1, 0>(args.stream, shape_.V * shape_.C, SameValue{}, {{wide}, {dw}});
    if (makes_loss(pass_)) {
      const LossSum<W> sum{losses, args.in<W>(3), args.out<W>(pass_ == HeadPass::kGrad ? 1 : 0), shape_.rows};
      launch_rows(args.stream, 1, shape_.rows, sum);
    }
    return {};
  }

 private:
  bool wide_dw() const { return has_dw_ && sizeof(W) != sizeof(T) && shape_.chunk() < shape_.rows; }

  HeadRow<T> row_of(const LaunchArgs& args, int64_t first, T* logits, W* losses) const {
    HeadRow<T> row{};
    row.pass = pass_;
    row.V = shape_.V;
    row.ld = shape_.ld;
    row.logits = logits;
    row.v = v_;
    if (pass_ != HeadPass::kMax) row.labels = args.in<int32_t>(2) + first;
    if (pass_ == HeadPass::kSums || reads_statistics(pass_)) row.m_in = args.in<W>(3) + first;
    if (reads_statistics(pass_)) row.s_in = args.in<W>(4) + first;
    if (pass_ == HeadPass::kTokensGrad) {
      row.dloss = args.in<W>(5) + first;
    } else if (makes_gradient(pass_)) {
      row.scale = args.in<W>(pass_ == HeadPass::kGrad ? 3 : 5);
      row.dloss = args.in<W>(pass_ == HeadPass::kGrad ? 4 : 6);
    }
    if (pass_ == HeadPass::kMax) row.m_out = args.out<W>(0) + first;
    if (pass_ == HeadPass::kSums) {
      row.s_out = args.out<W>(0) + first;
      row.picked_out = args.out<W>(1) + first;
    }
    if (makes_loss(pass_)) row.loss_out = losses + first;
    if (pass_ == HeadPass::kTokens) {
      row.loss_out = args.out<W>(0) + first;
      row.m_out = args.out<W>(1) + first;
      row.s_out = args.out<W>(2) + first;
    }
    return row;
  }

  const HeadPass pass_;
  const HeadShape shape_;
  const Products products_;
  const FactorIndex v_;
  const bool has_dw_;
  const Layout<T> layout_;
};

template <template <class> class Products>
Result<PreparedKernel> prepare_head(HeadPass pass, const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool has_dw = makes_gradient(pass) && spec.i64("weight_grad") != 0;
    const HeadShape shape = head_shape<T>(spec, has_dw);
    constexpr bool kIsLt = std::is_same_v<Products<T>, LtHeadProducts<T>>;
    auto products = Products<T>::create(spec, shape, makes_gradient(pass), has_dw);
    if (!products.ok()) return products.status();
    PreparedKernel prepared;
    if constexpr (kIsLt) prepared.products = products->all();
    auto kernel = std::make_unique<ChunkedHead<T, Products<T>>>(pass, shape, std::move(products).value(),
                                                                FactorIndex(spec.factor('v')), has_dw);
    const int64_t workspace = kernel->workspace_bytes();
    const double logits = double(shape.rows) * double(shape.V);
    prepared.kernel = std::move(kernel);
    prepared.workspace_bytes = workspace;
    prepared.flops = 2 * logits * double(shape.C) * (!makes_gradient(pass) ? 1 : has_dw ? 3 : 2);
    // Logits are written, read, replaced by the gradient and read by two matmuls; dw is read and written once
    // a chunk.
    prepared.bytes = operand_bytes(spec) + logits * sizeof(T) * (makes_gradient(pass) ? 5 : 2);
    if (has_dw && shape.chunk() < shape.rows)
      prepared.bytes +=
          2 * double(shape.rows) / double(shape.chunk()) * double(shape.V * shape.C) * sizeof(Wide<T>);
    // TF32 has half the rate of 16 bits.
    prepared.efficiency = !kIsLt ? 0.01 : sizeof(T) < 4 ? 0.6 : allows_tf32(spec) ? 0.3 : 0.05;
    return std::move(prepared);
  });
}

template <class W>
struct FinishRow {
  const int32_t* labels;
  const W *m, *s, *picked, *scale;
  W* loss;
  int64_t rows;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t) const {
    double sum = 0;
    team.each(rows, [&](int64_t r) {
      if (labels[r] >= 0) sum += static_cast<double>(log(s[r]) + m[r] - picked[r]);
    });
    sum = team.sum(sum);
    if (team.rank == 0) *loss = static_cast<W>(sum * static_cast<double>(*scale));
  }
};

// m, s, picked -> loss of each row.
struct TokenLoss : NoSetUp {
  const int32_t* labels;
  bool has_loss;
  template <class W>
  __device__ void operator()(int64_t row, const W* x, W* loss) const {
    loss[0] = labels[row] < 0 || !has_loss ? W(0) : log(x[1]) + x[0] - x[2];
  }
};

}  // namespace

// x [R, C], w [V, C], labels [R], scale [] -> loss []
Result<PreparedKernel> prepare_linear_cross_entropy(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kLoss, spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kLoss, spec);
}

// x [R, C], w [V, C], labels [R], scale, dloss [] -> dx [R, C], loss [], dw [V, C]
Result<PreparedKernel> prepare_linear_cross_entropy_grad(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kGrad, spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_grad_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kGrad, spec);
}

// x [R, C], w [V, C] -> m [R]
Result<PreparedKernel> prepare_linear_row_max(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kMax, spec);
}
Result<PreparedKernel> prepare_linear_row_max_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kMax, spec);
}

// x [R, C], w [V, C], labels, m [R] -> s, picked [R]
Result<PreparedKernel> prepare_linear_row_sums(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kSums, spec);
}
Result<PreparedKernel> prepare_linear_row_sums_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kSums, spec);
}

// x [R, C], w [V, C], labels, m, s [R], scale, dloss [] -> dx [R, C], dw [V, C]
Result<PreparedKernel> prepare_linear_cross_entropy_grad_finish(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kGradFinish, spec);
}
Result<PreparedKernel> prepare_linear_cross_entropy_grad_finish_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kGradFinish, spec);
}

// labels, m, s, picked [R], scale [] -> loss []: on the shard of v that begins at 0, else 0
Result<PreparedKernel> prepare_linear_cross_entropy_finish(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const int64_t rows = spec.factor('v').begin[0] == 0 ? spec.input_elements(2) : 0;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const FinishRow<W> finish{
                              args.in<int32_t>(2), args.in<W>(3),  args.in<W>(4), args.in<W>(5),
                              args.in<W>(6),       args.out<W>(0), rows};
                          launch_rows(args.stream, 1, rows, finish);
                        }));
  });
}

// x [R, C], w [V, C], labels [R] -> loss, m, s [R]
Result<PreparedKernel> prepare_linear_token_losses(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kTokens, spec);
}
Result<PreparedKernel> prepare_linear_token_losses_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kTokens, spec);
}

// x [R, C], w [V, C], labels, m, s, dloss [R] -> dx [R, C], dw [V, C]
Result<PreparedKernel> prepare_linear_token_losses_grad(const KernelSpec& spec) {
  return prepare_head<PlainHeadProducts>(HeadPass::kTokensGrad, spec);
}
Result<PreparedKernel> prepare_linear_token_losses_grad_lt(const KernelSpec& spec) {
  return prepare_head<LtHeadProducts>(HeadPass::kTokensGrad, spec);
}

// labels, m, s, picked [R] -> loss [R]: on the shard of v that begins at 0, else 0
Result<PreparedKernel> prepare_linear_token_losses_finish(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const int64_t rows = spec.input_elements(2);
    const bool has_loss = spec.factor('v').begin[0] == 0;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          TokenLoss loss;
                          loss.labels = args.in<int32_t>(2);
                          loss.has_loss = has_loss;
                          launch_map<W, 3, 1>(args.stream, rows, loss,
                                              {{args.inputs[3], args.inputs[4], args.inputs[5]},
                                               {args.outputs[0]}});
                        }));
  });
}

}  // namespace tessera::cuda
