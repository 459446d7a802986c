// Head and cross entropy in chunks of rows: a product leaves the logits of a chunk in the workspace, one
// kernel reads each row for its statistics and once more, out of the L2 cache, to make it its gradient, and
// two products take that up. Rows of logits are padded to 16 bytes, so that the products run at full rate
// whatever the vocabulary; dw is summed in f32 over the chunks.
#include <optional>

#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/kernels/lt_product.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

enum class Pass { kMax, kSums, kLoss, kGrad, kGradFinish };
__host__ __device__ inline bool makes_loss(Pass pass) { return pass == Pass::kLoss || pass == Pass::kGrad; }
__host__ __device__ inline bool makes_gradient(Pass pass) {
  return pass == Pass::kGrad || pass == Pass::kGradFinish;
}

// x [rows, C], w [V, C]; a row of logits takes `ld` elements.
struct HeadShape {
  int64_t rows, V, C, ld;
  int64_t
      dw_rows;  // rows of logits that take as much room as the f32 sum of dw, which one chunk does without

  // Rows of a chunk: some 128 Mi logits, in whole tiles of the products; all of them where that takes no more
  // memory.
  int64_t chunk() const {
    constexpr int64_t kElements = int64_t{128} << 20, kTile = 256, kMost = 8192;
    int64_t most = kElements / (V < 1 ? 1 : V) / kTile * kTile;
    most = most < kTile ? kTile : most > kMost ? kMost : most;
    return rows <= most + dw_rows ? rows : most;
  }
};

template <class T>
HeadShape shape_of(const KernelSpec& spec, bool has_dw) {
  constexpr int64_t kVec = 16 / sizeof(T), kNarrower = sizeof(Wide<T>) / sizeof(T);
  const Rows x = rows_of(spec.input_dims(0));
  const int64_t V = spec.input_dims(1)[0];
  return {x.count, V, x.cols, (V + kVec - 1) / kVec * kVec, has_dw && kNarrower > 1 ? x.cols * kNarrower : 0};
}

// Statistics of a row of logits, its loss, and its gradient in its place. Pointers are those of the chunk's
// first row.
template <class T>
struct HeadRow {
  using W = Wide<T>;
  Pass pass;
  int64_t V, ld;
  T* logits;
  const int32_t* labels;
  const W *m_in, *s_in, *scale, *dloss;
  W *m_out, *s_out, *picked_out, *loss_out;
  FactorIndex v;

  static constexpr int kVec = 16 / static_cast<int>(sizeof(T));

  // A row is read twice, the second time out of the L2 cache: two blocks of 640 threads on each of 132
  // multiprocessors have 26 MB of 16-bit logits in work where there are 50,000 tokens, of the 50 that the
  // cache holds. More and smaller blocks would push each other's rows out.
  static constexpr int kTeam = 640;

  // Of logits of 16 bits by the approximation of the special function unit (2 ulp of f32 and |x| 2^-24): a
  // row is two exponentials an element, and whole ones, with divisions, would take longer than the memory.
  static __device__ W exponential(W x) {
    if constexpr (sizeof(T) == 2)
      return __expf(x);
    else
      return exp(x);
  }

  // Maximum of what a thread reads, and the sum of exponentials above it, in one pass: the sum is scaled down
  // where the maximum grows. No branch, so that the packs of several turns are loaded at once. The maximum
  // passes over a NaN, the sum becomes one.
  struct Statistics {
    W m = minus_infinity<W>(), s = 0;
    template <int kCount>
    __device__ void add(const W (&x)[kCount], bool raises) {
      W top = m;
      if (raises) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) top = fmax(top, x[i]);
      }
      const W base = top == minus_infinity<W>() ? W(0) : top;
      if (raises) s *= exponential(m - base);
      m = top;
#pragma unroll
      for (int i = 0; i < kCount; ++i) s += exponential(x[i] - base);
    }
  };

  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    T* l = logits + row * ld;
    const int64_t whole = V / kVec * kVec;
    // The last elements, one at a time.
    const auto rest = [&](auto body) {
      for (int64_t c = whole + team.rank; c < V; c += Team::size) body(c);
    };
    W m, s;
    if (pass == Pass::kGradFinish) {
      m = m_in[row];
      s = s_in[row];
    } else {
      const bool raises = pass != Pass::kSums;
      Statistics own;
      if (!raises) own.m = m_in[row];
      team.template packs<kVec>(whole, [&](int64_t c) {
        W x[kVec];
        load_pack(l + c, x);
        own.add(x, raises);
      });
      rest([&](int64_t c) {
        const W x[1] = {widen(l[c])};
        own.add(x, raises);
      });
      // A NaN makes both NaN.
      m = raises ? team.max(own.s == own.s ? own.m : own.s) : own.m;
      s = own.m == minus_infinity<W>() ? W(0) : raises ? own.s * exp(own.m - m) : own.s;
    }
    if (pass == Pass::kMax) {
      if (team.rank == 0) m_out[row] = m;
      return;
    }
    const int32_t label = labels[row];
    const int64_t at = v.to_local(label);
    const bool is_here = at >= 0 && at < V;
    // Whether this thread makes the label's gradient.
    const bool owns = is_here && (at < whole ? at / kVec : at - whole) % Team::size == team.rank;
    // Of the others only the first needs it, before the sum, behind which its owner overwrites it.
    const bool looks = owns || (is_here && team.rank == 0 && pass != Pass::kGradFinish);
    const W picked = looks ? widen(l[at]) : W(0);
    if (pass != Pass::kGradFinish) s = team.sum(s);
    if (team.rank == 0) {
      if (pass == Pass::kSums) {
        s_out[row] = s;
        picked_out[row] = picked;
      }
      if (makes_loss(pass)) loss_out[row] = label < 0 ? W(0) : log(s) + m - picked;
    }
    if (!makes_gradient(pass)) return;
    if (label < 0) {
      const W none[kVec] = {};
      team.template packs<kVec>(whole, [&](int64_t c) { store_pack(l + c, none); });
      rest([&](int64_t c) { l[c] = narrow<T>(W(0)); });
      return;
    }
    const W factor = *scale * *dloss, share = factor / s;
    const auto gradient = [&](W x) {
      if constexpr (sizeof(T) == 2)
        return exponential(x - m) * share;
      else
        return exponential(x - m) / s * factor;
    };
    team.template packs<kVec>(whole, [&](int64_t c) {
      W x[kVec];
      load_pack(l + c, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[i] = gradient(x[i]);
      store_pack(l + c, x);
    });
    rest([&](int64_t c) { l[c] = narrow<T>(gradient(widen(l[c]))); });
    if (owns) l[at] = narrow<T>(gradient(picked) - factor);
  }
};

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

// --- products ---

// A result in Out, added to what is there or not.
template <class T, class Out>
struct StoreSum {
  Out* y;
  int64_t ld;
  bool adds;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    Out& at = y[m * ld + n];
    at = narrow<Out>(adds ? sum + widen(at) : sum);
  }
};

// On the plain cores, for every type and extent.
template <class T>
class PlainProducts {
 public:
  static Result<PlainProducts> create(const KernelSpec&, const HeadShape& shape, bool, bool) {
    PlainProducts made{shape};
    for (const GemmShape& product :
         {made.logits_of(shape.chunk()), made.dx_of(shape.chunk()), made.dw_of(shape.chunk())})
      if (gemm_blocks(product) >= (int64_t{1} << 31))
        return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(product)));
    return made;
  }
  int64_t workspace_bytes() const { return 0; }

  Status logits(const LaunchArgs& args, const T* x, const T* w, int64_t rows, T* l) const {
    launch_gemm(args.stream, logits_of(rows), x, w, WholeGemm{}, StoreSum<T, T>{l, shape_.ld, false});
    return {};
  }
  Status dx(const LaunchArgs& args, const T* g, const T* w, int64_t rows, T* out) const {
    launch_gemm(args.stream, dx_of(rows), g, w, WholeGemm{}, StoreSum<T, T>{out, shape_.C, false});
    return {};
  }
  // Into T where one chunk is all, else added up in f32 (f64 of f64).
  Status dw(const LaunchArgs& args, const T* g, const T* x, int64_t rows, bool first, void* out) const {
    if (rows == shape_.rows)
      launch_gemm(args.stream, dw_of(rows), g, x, WholeGemm{},
                  StoreSum<T, T>{static_cast<T*>(out), shape_.C, false});
    else
      launch_gemm(args.stream, dw_of(rows), g, x, WholeGemm{},
                  StoreSum<T, Wide<T>>{static_cast<Wide<T>*>(out), shape_.C, !first});
    return {};
  }

 private:
  explicit PlainProducts(const HeadShape& shape) : shape_(shape) {}
  GemmShape logits_of(int64_t rows) const {
    return {1, rows, shape_.V, shape_.C, 0, shape_.C, 1, 0, 1, shape_.C};
  }
  GemmShape dx_of(int64_t rows) const {
    return {1, rows, shape_.C, shape_.V, 0, shape_.ld, 1, 0, shape_.C, 1};
  }
  GemmShape dw_of(int64_t rows) const {
    return {1, shape_.V, shape_.C, rows, 0, 1, shape_.ld, 0, shape_.C, 1};
  }

  HeadShape shape_;
};

// Through cuBLASLt: of whole chunks, and of the last one.
template <class T>
class LtProducts {
 public:
  static Result<LtProducts> create(const KernelSpec& spec, const HeadShape& shape, bool gradient,
                                   bool weight) {
    if (shape.rows == 0 || shape.V == 0 || shape.C == 0)
      return Status(StatusCode::kUnsupported, format("a head of {} x {} x {}", shape.rows, shape.V, shape.C));
    LtProducts made;
    made.tf32_ = allows_tf32(spec);
    LtChoices choices(spec);
    made.chunk_ = shape.chunk();
    const int64_t last = (shape.rows - 1) % made.chunk_ + 1;
    TSR_ASSIGN_OR_RETURN(
        made.whole_, made.of(choices, shape, made.chunk_, true, made.chunk_ < shape.rows, gradient, weight));
    if (last == made.chunk_) {
      made.last_ = made.whole_;
    } else {
      TSR_ASSIGN_OR_RETURN(made.last_, made.of(choices, shape, last, false, true, gradient, weight));
    }
    return made;
  }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const std::vector<std::shared_ptr<const LtProduct>>& all() const { return all_; }

  Status logits(const LaunchArgs& args, const T* x, const T* w, int64_t rows, T* l) const {
    return of(rows).logits->launch({.a = x, .b = w, .c = l}, args.workspace, args.stream);
  }
  Status dx(const LaunchArgs& args, const T* g, const T* w, int64_t rows, T* out) const {
    return of(rows).dx->launch({.a = g, .b = w, .c = out}, args.workspace, args.stream);
  }
  Status dw(const LaunchArgs& args, const T* g, const T* x, int64_t rows, bool first, void* out) const {
    const auto& product = first ? of(rows).dw : of(rows).add_dw;
    return product->launch({.a = g, .b = x, .c = out, .addend = first ? nullptr : out}, args.workspace,
                           args.stream);
  }

 private:
  using Product = std::shared_ptr<const LtProduct>;
  struct Chunk {
    Product logits, dx, dw, add_dw;
  };
  const Chunk& of(int64_t rows) const { return rows == chunk_ ? whole_ : last_; }

  Result<Product> product(LtChoices& choices, LtShape shape) {
    shape.tf32 = tf32_;
    const int64_t bytes = LtProduct::workspace_bytes(shape);
    workspace_bytes_ = workspace_bytes_ < bytes ? bytes : workspace_bytes_;
    TSR_ASSIGN_OR_RETURN(Product made, LtProduct::create(shape, choices.take()));
    all_.push_back(made);
    return made;
  }
  Result<Chunk> of(LtChoices& choices, const HeadShape& shape, int64_t rows, bool is_first, bool adds,
                   bool gradient, bool weight) {
    const DType dtype = dtype_of(T{});
    Chunk made;
    LtShape logits{rows, shape.V, shape.C, false, true, dtype, false};
    logits.c_row = shape.ld;
    TSR_ASSIGN_OR_RETURN(made.logits, product(choices, logits));
    if (!gradient) return made;
    LtShape dx{rows, shape.C, shape.V, false, false, dtype, false};
    dx.a_row = shape.ld;
    TSR_ASSIGN_OR_RETURN(made.dx, product(choices, dx));
    if (!weight) return made;
    LtShape dw{shape.V, shape.C, rows, true, false, dtype, false};
    dw.a_row = shape.ld;
    dw.wide_c = chunk_ < shape.rows;
    if (is_first) {
      TSR_ASSIGN_OR_RETURN(made.dw, product(choices, dw));
    }
    dw.adds = true;
    if (adds) {
      TSR_ASSIGN_OR_RETURN(made.add_dw, product(choices, dw));
    }
    return made;
  }
  static DType dtype_of(float) { return DType::kF32; }
  static DType dtype_of(double) { return DType::kF64; }
  static DType dtype_of(__half) { return DType::kF16; }
  static DType dtype_of(__nv_bfloat16) { return DType::kBF16; }

  bool tf32_ = false;
  int64_t chunk_ = 0, workspace_bytes_ = 0;
  Chunk whole_, last_;
  std::vector<Product> all_;  // as they were made
};

// --- the passes ---

// The workspace: of the products, dw in f32 where it is added up and its type is narrower, the logits of a
// chunk, the losses of all rows.
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
  ChunkedHead(Pass pass, const HeadShape& shape, Products products, const FactorIndex& v, bool has_dw)
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
    T* dw = has_dw_ ? args.out<T>(pass_ == Pass::kGrad ? 2 : 1) : nullptr;
    W* wide = reinterpret_cast<W*>(workspace + layout_.dw_at);
    void* sums = wide_dw() ? static_cast<void*>(wide) : dw;
    for (int64_t first = 0; first < shape_.rows; first += shape_.chunk()) {
      const int64_t left = shape_.rows - first, rows = left < shape_.chunk() ? left : shape_.chunk();
      const T* of_chunk = x + first * shape_.C;
      TSR_RETURN_IF_ERROR(products_.logits(args, of_chunk, w, rows, logits));
      // Of a few tokens (bytes, say) a row is a warp's.
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
      const LossSum<W> sum{losses, args.in<W>(3), args.out<W>(pass_ == Pass::kGrad ? 1 : 0), shape_.rows};
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
    if (pass_ != Pass::kMax) row.labels = args.in<int32_t>(2) + first;
    if (pass_ == Pass::kSums || pass_ == Pass::kGradFinish) row.m_in = args.in<W>(3) + first;
    if (pass_ == Pass::kGradFinish) row.s_in = args.in<W>(4) + first;
    if (makes_gradient(pass_)) {
      row.scale = args.in<W>(pass_ == Pass::kGrad ? 3 : 5);
      row.dloss = args.in<W>(pass_ == Pass::kGrad ? 4 : 6);
    }
    if (pass_ == Pass::kMax) row.m_out = args.out<W>(0) + first;
    if (pass_ == Pass::kSums) {
      row.s_out = args.out<W>(0) + first;
      row.picked_out = args.out<W>(1) + first;
    }
    if (makes_loss(pass_)) row.loss_out = losses + first;
    return row;
  }

  const Pass pass_;
  const HeadShape shape_;
  const Products products_;
  const FactorIndex v_;
  const bool has_dw_;
  const Layout<T> layout_;
};

template <template <class> class Products>
Result<Prepared> prepare_head(Pass pass, const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const bool has_dw = makes_gradient(pass) && spec.i64("weight_grad") != 0;
    const HeadShape shape = shape_of<T>(spec, has_dw);
    constexpr bool kIsLt = std::is_same_v<Products<T>, LtProducts<T>>;
    auto products = Products<T>::create(spec, shape, makes_gradient(pass), has_dw);
    if (!products.ok()) return products.status();
    Prepared prepared;
    if constexpr (kIsLt) prepared.products = products->all();
    auto kernel = std::make_unique<ChunkedHead<T, Products<T>>>(pass, shape, std::move(products).value(),
                                                                FactorIndex(spec.factor('v')), has_dw);
    const int64_t workspace = kernel->workspace_bytes();
    const double logits = double(shape.rows) * double(shape.V);
    prepared.kernel = std::move(kernel);
    prepared.workspace_bytes = workspace;
    prepared.flops = 2 * logits * double(shape.C) * (!makes_gradient(pass) ? 1 : has_dw ? 3 : 2);
    // Logits are written, read, made a gradient and read by two products; dw is read and written once a
    // chunk.
    prepared.bytes = operand_bytes(spec) + logits * sizeof(T) * (makes_gradient(pass) ? 5 : 2);
    if (has_dw && shape.chunk() < shape.rows)
      prepared.bytes +=
          2 * double(shape.rows) / double(shape.chunk()) * double(shape.V * shape.C) * sizeof(Wide<T>);
    // TF32 at half the rate of 16 bits.
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

}  // namespace

// x [R, C], w [V, C], labels [R], scale [] -> loss []
Result<Prepared> prepare_linear_cross_entropy(const KernelSpec& spec) {
  return prepare_head<PlainProducts>(Pass::kLoss, spec);
}
Result<Prepared> prepare_linear_cross_entropy_lt(const KernelSpec& spec) {
  return prepare_head<LtProducts>(Pass::kLoss, spec);
}

// x [R, C], w [V, C], labels [R], scale, dloss [] -> dx [R, C], loss [], dw [V, C]
Result<Prepared> prepare_linear_cross_entropy_grad(const KernelSpec& spec) {
  return prepare_head<PlainProducts>(Pass::kGrad, spec);
}
Result<Prepared> prepare_linear_cross_entropy_grad_lt(const KernelSpec& spec) {
  return prepare_head<LtProducts>(Pass::kGrad, spec);
}

// x [R, C], w [V, C] -> m [R]
Result<Prepared> prepare_linear_row_max(const KernelSpec& spec) {
  return prepare_head<PlainProducts>(Pass::kMax, spec);
}
Result<Prepared> prepare_linear_row_max_lt(const KernelSpec& spec) {
  return prepare_head<LtProducts>(Pass::kMax, spec);
}

// x [R, C], w [V, C], labels, m [R] -> s, picked [R]
Result<Prepared> prepare_linear_row_sums(const KernelSpec& spec) {
  return prepare_head<PlainProducts>(Pass::kSums, spec);
}
Result<Prepared> prepare_linear_row_sums_lt(const KernelSpec& spec) {
  return prepare_head<LtProducts>(Pass::kSums, spec);
}

// x [R, C], w [V, C], labels, m, s [R], scale, dloss [] -> dx [R, C], dw [V, C]
Result<Prepared> prepare_linear_cross_entropy_grad_finish(const KernelSpec& spec) {
  return prepare_head<PlainProducts>(Pass::kGradFinish, spec);
}
Result<Prepared> prepare_linear_cross_entropy_grad_finish_lt(const KernelSpec& spec) {
  return prepare_head<LtProducts>(Pass::kGradFinish, spec);
}

// labels, m, s, picked [R], scale [] -> loss []: on the shard of v that begins at 0, else 0
Result<Prepared> prepare_linear_cross_entropy_finish(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<Prepared> {
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

}  // namespace tessera::cuda
