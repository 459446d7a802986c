// Products of heads with their own rows of a weight, on the plain cores: a batch is a head.
#include <algorithm>

#include "runtime/backends/cuda/kernels/block_weight.cuh"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Rows are tokens, with their heads next to each other.
template <class T>
struct StoreHead {
  T* y;
  int64_t heads, N;
  __device__ void operator()(int64_t batch, int64_t m, int64_t n, Wide<T> sum) const {
    y[(m * heads + batch) * N + n] = narrow<T>(sum);
  }
};

// Decodes blocks of rows [begin, begin + rows) of heads into [heads, rows, columns].
template <class Block>
struct DecodeHeads {
  const uint8_t* w;
  float* out;
  int64_t row_blocks, rows, head_rows, begin;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / row_blocks, head = row / rows;
    float values[Block::kElements];
    load_block<Block>(w, (head * head_rows + begin + row % rows) * row_blocks + i % row_blocks, values);
    for (int k = 0; k < Block::kElements; ++k) out[i * Block::kElements + k] = values[k];
  }
};

struct HeadSizes {
  int64_t M, H, rows, columns, head_rows, begin;
  bool trans;

  explicit HeadSizes(const KernelSpec& spec)
      : M(spec.input_dims(0)[0] * spec.input_dims(0)[1]),
        H(spec.input_dims(0)[2]),
        rows(spec.i64("end") - spec.i64("begin")),
        columns(spec.input_dims(1)[1]),
        head_rows(H > 0 ? spec.input_dims(1)[0] / H : 0),
        begin(spec.i64("begin")),
        trans(spec.i64("trans_w") == 1) {}
  int64_t K() const { return trans ? columns : rows; }
  int64_t N() const { return trans ? rows : columns; }
  GemmShape gemm() const {
    return {H, M, N(), K(), K(), H * K(), 1, head_rows * columns, trans ? 1 : columns, trans ? columns : 1};
  }
};

// Results of heads from `first` on, whose rows are decoded; sums ascend.
template <class T>
struct HeadSums {
  const T* x;
  const float* decoded;  // [heads, rows, columns]
  T* y;
  int64_t first, M, H, K, N, head_floats, k_step, n_step;
  __device__ void operator()(int64_t i) const {
    const int64_t n = i % N, m = i / N % M, head = i / N / M;
    const int64_t at = m * H + first + head;
    const float* w = decoded + head * head_floats + n * n_step;
    Wide<T> sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += widen(x[at * K + k]) * static_cast<Wide<T>>(w[k * k_step]);
    y[at * N + n] = narrow<T>(sum);
  }
};

constexpr int64_t kDecodedFloats = int64_t{8} << 20;

Status check_grid(const GemmShape& shape) {
  if (gemm_blocks(shape) < int64_t{1} << 31) return {};
  return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(shape)));
}

}  // namespace

// x [B, T, H, K], w [H * M, K] -> y [B, T, H, end - begin], or with trans_w = 0 the other way round.
Result<PreparedKernel> prepare_head_matmul(const KernelSpec& spec) {
  if (spec.input_dtype(0) != spec.input_dtype(1))
    return Status(StatusCode::kUnsupported, format("weights of {}", to_text(spec.input_dtype(1))));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const HeadSizes e(spec);
    const GemmShape shape = e.gemm();
    TSR_RETURN_IF_ERROR(check_grid(shape));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           launch_gemm(args.stream, shape, args.in<T>(0), args.in<T>(1) + e.begin * e.columns,
                                       WholeGemm{}, StoreHead<T>{args.out<T>(0), e.H, e.N()});
                         }),
                         shape);
  });
}

// Likewise for weights of 16 bits or block types, decoded to f32 some heads at a time.
Result<PreparedKernel> prepare_head_matmul_stored(const KernelSpec& spec) {
  if (spec.input_dtype(0) == spec.input_dtype(1))
    return Status(StatusCode::kUnsupported, "this kernel decodes weights of another type than x");
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_stored_weight(spec.input_dtype(1), [&](auto block) -> Result<PreparedKernel> {
      using Block = decltype(block);
      const HeadSizes e(spec);
      const int64_t head_floats = e.rows * e.columns, row_blocks = e.columns / Block::kElements;
      const int64_t most = std::clamp<int64_t>(kDecodedFloats / std::max<int64_t>(head_floats, 1), 1,
                                               std::max<int64_t>(e.H, 1));
      auto launch = [=](const LaunchArgs& args) {
        auto* decoded = static_cast<float*>(args.workspace);
        for (int64_t first = 0; first < e.H; first += most) {
          const int64_t heads = std::min(most, e.H - first);
          const uint8_t* w =
              args.in<uint8_t>(1) + first * e.head_rows * row_blocks * static_cast<int64_t>(sizeof(Block));
          launch_each(args.stream, heads * e.rows * row_blocks,
                      DecodeHeads<Block>{w, decoded, row_blocks, e.rows, e.head_rows, e.begin});
          launch_each(args.stream, heads * e.M * e.N(),
                      HeadSums<T>{args.in<T>(0), decoded, args.out<T>(0), first, e.M, e.H, e.K(), e.N(),
                                  head_floats, e.trans ? 1 : e.columns, e.trans ? e.columns : 1});
        }
      };
      PreparedKernel prepared = memory_bound(spec, make_kernel(launch));
      prepared.flops = 2.0 * double(e.M) * double(e.H) * double(head_floats);
      prepared.efficiency = 0.01;
      prepared.workspace_bytes = 4 * most * head_floats;
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

}  // namespace tessera::cuda
