// head_matmul in f32 on the Gemm, and over weights of block types on the products of quantized_rows.h. Few tokens: all heads
// at once, in tasks of columns of a head; more of them: a head at a time, whose products share out the threads.
#include <algorithm>

#include "runtime/backends/cpu/kernels/expert_slots.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/head_products.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {
namespace {

// Columns of a task over blocks: what either product takes without waste.
constexpr int64_t kDotColumns = 48, kSumColumns = 256;
constexpr int64_t kMoveGrain = 4096;  // numbers of a task that moves them

struct PackedHeads {
  HeadProducts p;
  bool has_blocks;
  int64_t heads_per_round;

  explicit PackedHeads(const KernelSpec& spec)
      : p(spec), has_blocks(can_multiply_blocks(p.stored)), heads_per_round(p.M <= kSkinnyRows ? p.H : 1) {}

  // One token has its heads in order: nothing is moved.
  bool moves() const { return p.M > 1; }
  int64_t floats_of(int64_t width) const { return moves() ? aligned_floats(heads_per_round * p.M * width) : 0; }
  Gemm gemm() const {
    Gemm gemm{.m = p.M, .n = p.N(), .k = p.K(), .a_row = p.K(), .b_type = p.stored};
    gemm.b_row = p.trans ? 1 : p.columns;
    gemm.b_col = p.trans ? p.columns : 1;
    return gemm;
  }
  int64_t gemm_bytes() const { return has_blocks ? 0 : gemm_workspace_bytes(gemm()); }
  int64_t workspace_bytes() const {
    return int64_t{sizeof(float)} * (floats_of(p.K()) + floats_of(p.N())) + gemm_bytes();
  }

  GemmBuffers buffers(const LaunchArgs& args, int64_t head, const float* x, float* y, void* room) const {
    GemmBuffers buffers{.a = x, .c = y, .workspace = room};
    const std::byte* w = p.weight_of(args, head);
    if (p.stored == DType::kF32)
      buffers.b = reinterpret_cast<const float*>(w);
    else
      buffers.b_16 = reinterpret_cast<const uint16_t*>(w);
    return buffers;
  }

  // Products of `count` heads from `first` on: x [count, M, K] -> y [count, M, N].
  void multiply(const LaunchArgs& args, int64_t first, int64_t count, const float* x, float* y,
                void* room) const {
    const int64_t of_x = p.M * p.K(), of_y = p.M * p.N();
    if (has_blocks) return multiply_blocks(args, first, count, x, y);
    const Gemm g = gemm();
    const int64_t tasks = skinny_gemm_tasks(g);
    if (tasks == 0) {
      for (int64_t i = 0; i < count; ++i)
        run_gemm(g, buffers(args, first + i, x + i * of_x, y + i * of_y, room), args.pool);
      return;
    }
    args.pool.parallel_for(count * tasks, [&](int64_t task) {
      const int64_t i = task / tasks;
      run_skinny_gemm_task(g, buffers(args, first + i, x + i * of_x, y + i * of_y, nullptr), task % tasks);
    });
  }

  void multiply_blocks(const LaunchArgs& args, int64_t first, int64_t count, const float* x, float* y) const {
    const int64_t grain = p.trans ? kDotColumns : kSumColumns, tasks = (p.N() + grain - 1) / grain;
    args.pool.parallel_for(count * tasks, [&](int64_t task) {
      const int64_t i = task / tasks, begin = task % tasks * grain, end = std::min(p.N(), begin + grain);
      Scratch scratch(args.pool, block_product_scratch_bytes() / 4);
      float* const room = scratch.floats(block_product_scratch_bytes() / 4);
      const BlockMatrix w{
          .type = p.stored, .N = p.rows, .K = p.columns, .data = p.weight_of(args, first + i)};
      const float* const rows = x + i * p.M * p.K();
      float* const out = y + i * p.M * p.N();
      if (p.trans)
        multiply_blocks_f32(w, rows, p.M, nullptr, out, begin, end, room);
      else
        multiply_blocks_transposed(w, rows, p.M, out, begin, end, room);
    });
  }

  // Moves rows of `width` between [M, H, width] and [count, M, width], those of heads from `first` on.
  template <class Move>
  void move_rows(const Pool& pool, int64_t first, int64_t count, int64_t width, Move move) const {
    if (width == 0) return;
    pool.parallel_ranges(count * p.M, kMoveGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        move((r % p.M * p.H + first + r / p.M) * width, r * width, static_cast<size_t>(width));
    });
  }

  void run(const LaunchArgs& args) const {
    const float* x = args.in<float>(0);
    float* y = args.out<float>(0);
    touch_end(args, workspace_bytes());
    if (!moves()) return multiply(args, 0, p.H, x, y, args.workspace);
    float* const packed_x = static_cast<float*>(args.workspace);
    float* const packed_y = packed_x + floats_of(p.K());
    for (int64_t first = 0; first < p.H; first += heads_per_round) {
      move_rows(args.pool, first, heads_per_round, p.K(), [&](int64_t there, int64_t here, size_t width) {
        std::copy_n(x + there, width, packed_x + here);
      });
      multiply(args, first, heads_per_round, packed_x, packed_y, packed_y + floats_of(p.N()));
      move_rows(args.pool, first, heads_per_round, p.N(), [&](int64_t there, int64_t here, size_t width) {
        std::copy_n(packed_y + here, width, y + there);
      });
    }
  }
};

}  // namespace

// x [B, T, H, K], w [H * M, K] -> y [B, T, H, end - begin], or with trans_w = 0 the other way round.
Result<PreparedKernel> prepare_head_matmul_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  const PackedHeads heads(spec);
  const HeadProducts& p = heads.p;
  if (spec.input_dtype(0) != DType::kF32 ||
      (p.stored != DType::kF32 && !is_half_type(p.stored) && !heads.has_blocks))
    return Status(
        StatusCode::kUnsupported,
        format("dtypes {} and {}: this kernel computes in f32, with weights of f32, 16 bits or blocks",
               to_text(spec.input_dtype(0)), to_text(p.stored)));
  if (p.M == 0 || p.H == 0 || p.rows == 0 || p.columns == 0)
    return Status(StatusCode::kUnsupported, "nothing to multiply");
  PreparedKernel prepared =
      simd_prepared(spec, p.flops(), make_kernel([=](const LaunchArgs& args) { heads.run(args); }),
                    heads.workspace_bytes());
  prepared.efficiency = p.M <= 8 ? 0.4 : 0.7;
  return prepared;
}

}  // namespace tessera::cpu
