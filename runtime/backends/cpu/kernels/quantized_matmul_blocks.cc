// quantized_matmul and its gradient over weights of block types: products of quantized_rows.h, a range of
// rows or columns of the weight a task.
#include <algorithm>
#include <limits>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kTaskBytes = int64_t{64} << 10;  // of the weight: enough to hand out, and in the cache
constexpr int64_t kGradientColumns = 256;          // the largest block
constexpr int64_t kRowsAtOnce = 8;                 // of x, quantised by a task

Status check_blocks(const KernelSpec& spec, const QuantizedMatmulShape& s) {
  TSR_RETURN_IF_ERROR(simd_supported());
  if (spec.input_dtype(0) != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("dtype {}: this kernel computes in f32", to_text(spec.input_dtype(0))));
  if (!can_multiply_blocks(s.dtype))
    return Status(StatusCode::kUnsupported, format("weight {}: wanted a block type", to_text(s.dtype)));
  if (s.K == 0 || s.N == 0) return Status(StatusCode::kUnsupported, "an empty weight");
  return {};
}

BlockMatrix matrix_of(const QuantizedMatmulShape& s, const LaunchArgs& args, bool interleaved = false) {
  return {.type = s.dtype, .N = s.N, .K = s.K, .data = args.in<std::byte>(1), .interleaved = interleaved};
}

// Rows of the weight a task, a multiple of `unit`: as many as kTaskBytes hold, or fewer so that two threads and
// four have as much to do each.
int64_t row_grain_of(const QuantizedMatmulShape& s, int64_t unit) {
  const int64_t units = (s.N + unit - 1) / unit,
                most = std::max<int64_t>(1, kTaskBytes / s.row_bytes() / unit);
  int64_t best = most, best_cost = std::numeric_limits<int64_t>::max();
  for (int64_t grain = most; grain >= std::max<int64_t>(1, most / 4); --grain) {
    int64_t cost = 0;  // units that threads spend, waiting included
    for (const int64_t threads : {2, 4})
      cost += ((units + grain - 1) / grain + threads - 1) / threads * threads * grain;
    if (cost < best_cost) best = grain, best_cost = cost;
  }
  return best * unit;
}

// Scratch of a task for the products.
class ProductScratch {
 public:
  explicit ProductScratch(const Pool& pool)
      : scratch_(pool, block_product_scratch_bytes() / 4),
        floats_(scratch_.floats(block_product_scratch_bytes() / 4)) {}
  void* get() { return floats_; }

 private:
  Scratch scratch_;
  float* floats_;
};

PreparedKernel prepare_rounded(const KernelSpec& spec, const QuantizedMatmulShape& s, bool interleaved) {
  const int64_t row = quantized_row_bytes(s.dtype, s.K), grain = row_grain_of(s, 2 * interleaved_rows());
  const auto tasks = [=](const LaunchArgs&, int phase) {
    return phase == 0 ? (s.M + kRowsAtOnce - 1) / kRowsAtOnce : (s.N + grain - 1) / grain;
  };
  const auto run = [=](const LaunchArgs& args, int phase, int64_t task) {
    auto* rows = static_cast<std::byte*>(args.workspace);
    if (phase == 0) {
      const int64_t begin = task * kRowsAtOnce, end = std::min(s.M, begin + kRowsAtOnce);
      quantize_rows(s.dtype, args.in<float>(0) + begin * s.K, end - begin, s.K, rows + begin * row);
      return;
    }
    ProductScratch scratch(args.pool);
    multiply_blocks_q8(matrix_of(s, args, interleaved), rows, s.M,
                       s.bias < 0 ? nullptr : args.in<float>(s.bias), args.out<float>(0), task * grain,
                       std::min(s.N, (task + 1) * grain), scratch.get());
  };
  return simd_prepared(spec, s.flops(), make_phased_kernel(2, s.M <= kRowsAtOnce, tasks, run), s.M * row);
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]. As "blocks:interleaved" with w arranged by weight_arrange.
Result<PreparedKernel> prepare_quantized_matmul_blocks(const KernelSpec& spec) {
  const QuantizedMatmulShape s = quantized_matmul_shape(spec);
  TSR_RETURN_IF_ERROR(check_blocks(spec, s));
  const bool rounds = spec.string("activations") == "q8";
  const size_t colon = spec.variant().find(':');
  const bool interleaved = colon != std::string_view::npos;
  if (interleaved &&
      (spec.variant().substr(colon + 1) != "interleaved" || !rounds || !can_interleave_rows(s.dtype)))
    return Status(StatusCode::kUnsupported,
                  format("no '{}' for weights of {}", spec.variant(), to_text(s.dtype)));
  if (rounds) return prepare_rounded(spec, s, interleaved);
  const int64_t grain = row_grain_of(s, 48);
  const auto tasks = [=](const LaunchArgs&, int) { return (s.N + grain - 1) / grain; };
  const auto run = [=](const LaunchArgs& args, int, int64_t task) {
    ProductScratch scratch(args.pool);
    multiply_blocks_f32(matrix_of(s, args), args.in<float>(0), s.M,
                        s.bias < 0 ? nullptr : args.in<float>(s.bias), args.out<float>(0), task * grain,
                        std::min(s.N, (task + 1) * grain), scratch.get());
  };
  PreparedKernel prepared = simd_prepared(spec, s.flops(), make_phased_kernel(1, false, tasks, run));
  prepared.efficiency = 0.7;
  return prepared;
}

// dy [M, N], w [N, K] -> dx [M, K]
Result<PreparedKernel> prepare_quantized_matmul_grad_blocks(const KernelSpec& spec) {
  const QuantizedMatmulShape s = quantized_matmul_grad_shape(spec);
  TSR_RETURN_IF_ERROR(check_blocks(spec, s));
  auto launch = [=](const LaunchArgs& args) {
    args.pool.parallel_ranges(s.K, kGradientColumns, [&](int64_t begin, int64_t end) {
      ProductScratch scratch(args.pool);
      multiply_blocks_transposed(matrix_of(s, args), args.in<float>(0), s.M, args.out<float>(0), begin, end,
                                 scratch.get());
    });
  };
  PreparedKernel prepared = simd_prepared(spec, s.flops(), make_kernel(launch));
  prepared.efficiency = 0.7;
  return prepared;
}

}  // namespace tessera::cpu
