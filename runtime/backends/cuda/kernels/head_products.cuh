// Matmuls of the head, by chunks of rows: logits, and dx and dw of their gradient (linear_cross_entropy.cu).
// On plain cores and through cuBLASLt.
#pragma once

#include <memory>
#include <vector>

#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// x [rows, C], w [V, C]; a row of logits takes `ld` elements.
struct HeadShape {
  int64_t rows, V, C, ld;
  int64_t dw_rows;  // rows of logits that take the memory of the f32 sum of dw, which one chunk does without

  // Rows of a chunk: some 256 Mi logits, in whole tiles of the matmuls; all rows where that takes no more
  // memory.
  int64_t chunk() const {
    constexpr int64_t kElements = int64_t{256} << 20, kTile = 256, kMost = 8192;
    int64_t most = kElements / (V < 1 ? 1 : V) / kTile * kTile;
    most = most < kTile ? kTile : most > kMost ? kMost : most;
    return rows <= most + dw_rows ? rows : most;
  }
};

template <class T>
HeadShape head_shape(const KernelSpec& spec, bool has_dw) {
  constexpr int64_t kVec = 16 / sizeof(T), kNarrower = sizeof(Wide<T>) / sizeof(T);
  const Rows x = rows_of(spec.input_dims(0));
  const int64_t V = spec.input_dims(1)[0];
  return {x.count, V, x.cols, (V + kVec - 1) / kVec * kVec, has_dw && kNarrower > 1 ? x.cols * kNarrower : 0};
}

// Stores a result as Out, added to the old value or not.
template <class T, class Out>
struct StoreHeadSum {
  Out* y;
  int64_t ld;
  bool adds;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    Out& at = y[m * ld + n];
    at = narrow<Out>(adds ? sum + widen(at) : sum);
  }
};

// Plain cores, for every type and extent.
template <class T>
class PlainHeadProducts {
 public:
  static Result<PlainHeadProducts> create(const KernelSpec&, const HeadShape& shape, bool, bool) {
    PlainHeadProducts made{shape};
    for (const GemmShape& product :
         {made.logits_of(shape.chunk()), made.dx_of(shape.chunk()), made.dw_of(shape.chunk())})
      if (gemm_blocks(product) >= (int64_t{1} << 31))
        return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(product)));
    return made;
  }
  int64_t workspace_bytes() const { return 0; }

  Status logits(const LaunchArgs& args, const T* x, const T* w, int64_t rows, T* l) const {
    launch_gemm(args.stream, logits_of(rows), x, w, WholeGemm{}, StoreHeadSum<T, T>{l, shape_.ld, false});
    return {};
  }
  Status dx(const LaunchArgs& args, const T* g, const T* w, int64_t rows, T* out) const {
    launch_gemm(args.stream, dx_of(rows), g, w, WholeGemm{}, StoreHeadSum<T, T>{out, shape_.C, false});
    return {};
  }
  // Stored as T where one chunk is all, else summed in f32 (f64 for f64).
  Status dw(const LaunchArgs& args, const T* g, const T* x, int64_t rows, bool first, void* out) const {
    if (rows == shape_.rows)
      launch_gemm(args.stream, dw_of(rows), g, x, WholeGemm{},
                  StoreHeadSum<T, T>{static_cast<T*>(out), shape_.C, false});
    else
      launch_gemm(args.stream, dw_of(rows), g, x, WholeGemm{},
                  StoreHeadSum<T, Wide<T>>{static_cast<Wide<T>*>(out), shape_.C, !first});
    return {};
  }

 private:
  explicit PlainHeadProducts(const HeadShape& shape) : shape_(shape) {}
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

// cuBLASLt, with one algorithm for whole chunks and one for the last.
template <class T>
class LtHeadProducts {
 public:
  static Result<LtHeadProducts> create(const KernelSpec& spec, const HeadShape& shape, bool gradient,
                                       bool weight) {
    if (shape.rows == 0 || shape.V == 0 || shape.C == 0)
      return Status(StatusCode::kUnsupported, format("a head of {} x {} x {}", shape.rows, shape.V, shape.C));
    LtHeadProducts made;
    made.tf32_ = allows_tf32(spec);
    LtChoices choices(spec);
    made.chunk_ = shape.chunk();
    const int64_t last = (shape.rows - 1) % made.chunk_ + 1;
    TSR_ASSIGN_OR_RETURN(made.whole_, made.make_chunk(choices, shape, made.chunk_, true,
                                                      made.chunk_ < shape.rows, gradient, weight));
    if (last == made.chunk_) {
      made.last_ = made.whole_;
    } else {
      TSR_ASSIGN_OR_RETURN(made.last_, made.make_chunk(choices, shape, last, false, true, gradient, weight));
    }
    return made;
  }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const std::vector<std::shared_ptr<const CublasLtMatmul>>& all() const { return all_; }

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
  using Product = std::shared_ptr<const CublasLtMatmul>;
  struct Chunk {
    Product logits, dx, dw, add_dw;
  };
  const Chunk& of(int64_t rows) const { return rows == chunk_ ? whole_ : last_; }

  Result<Product> product(LtChoices& choices, LtShape shape) {
    shape.tf32 = tf32_;
    const int64_t bytes = CublasLtMatmul::workspace_bytes(shape);
    workspace_bytes_ = workspace_bytes_ < bytes ? bytes : workspace_bytes_;
    TSR_ASSIGN_OR_RETURN(Product made, CublasLtMatmul::create(shape, choices.take()));
    all_.push_back(made);
    return made;
  }
  Result<Chunk> make_chunk(LtChoices& choices, const HeadShape& shape, int64_t rows, bool is_first, bool adds,
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

}  // namespace tessera::cuda
