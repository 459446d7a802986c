// expert_matmul in f32 over weights of block types: products of quantized_rows.h, an expert at a time, over the
// taken slots of all sequences. Experts without a token are not read.
#include <algorithm>

#include "runtime/backends/cpu/kernels/expert_slots.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kTaskBytes = int64_t{64} << 10;  // of the weight: enough to hand out, and in the cache
constexpr int64_t kGradientColumns = 256;          // the largest block
constexpr int64_t kRowsAtOnce = 8;                 // of x, quantised by a task

// Extents of one expert's product, M taken slots at most, and how its weight is stored: [N, K] or, turned, [K, N].
struct ExpertProduct {
  DType type = DType::kQ8_0;
  int64_t M = 0, N = 0, K = 0;
  bool turned = false, rounds = false;

  int64_t expert_bytes() const { return dtype_bytes(type, N * K); }
  int64_t quantized_bytes() const { return rounds ? quantized_row_bytes(type, K) : 0; }
};

// `rows` of x [taken, K] -> y [taken, N]; `quantized` holds the rounded rows.
void multiply(const ExpertProduct& p, const std::byte* w, const float* x, int64_t taken, std::byte* quantized,
              float* y, const Pool& pool) {
  const auto each_range = [&](int64_t count, int64_t grain, const auto& body) {
    pool.parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
      Scratch scratch(pool, block_product_scratch_bytes() / 4);
      body(begin, end, scratch.floats(block_product_scratch_bytes() / 4));
    });
  };
  if (p.turned) {
    const BlockMatrix matrix{.type = p.type, .N = p.K, .K = p.N, .data = w};
    each_range(p.N, kGradientColumns, [&](int64_t begin, int64_t end, void* scratch) {
      multiply_blocks_transposed(matrix, x, taken, y, begin, end, scratch);
    });
    return;
  }
  const BlockMatrix matrix{.type = p.type, .N = p.N, .K = p.K, .data = w};
  const int64_t unit = p.rounds ? 2 * interleaved_rows() : 48;
  const int64_t grain = std::max<int64_t>(1, kTaskBytes / dtype_bytes(p.type, p.K) / unit) * unit;
  if (!p.rounds) {
    each_range(p.N, grain, [&](int64_t begin, int64_t end, void* scratch) {
      multiply_blocks_f32(matrix, x, taken, nullptr, y, begin, end, scratch);
    });
    return;
  }
  pool.parallel_ranges(taken, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    quantize_rows(p.type, x + begin * p.K, end - begin, p.K, quantized + begin * p.quantized_bytes());
  });
  each_range(p.N, grain, [&](int64_t begin, int64_t end, void* scratch) {
    multiply_blocks_q8(matrix, quantized, taken, nullptr, y, begin, end, scratch);
  });
}

}  // namespace

// x [E, B, S, K], w [E, N, K] or [E, K, N], load [E, B] -> y [E, B, S, N]
Result<PreparedKernel> prepare_expert_matmul_blocks(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  const ExpertRows rows(spec);
  const ExpertProduct p{.type = spec.input_dtype(1),
                        .M = rows.B * rows.S,
                        .N = spec.output_dims(0)[3],
                        .K = spec.input_dims(0)[3],
                        .turned = spec.i64("trans_w") != 1,
                        .rounds = spec.string("activations") == "q8"};
  if (spec.input_dtype(0) != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("dtype {}: this kernel computes in f32", to_text(spec.input_dtype(0))));
  if (!can_multiply_blocks(p.type))
    return Status(StatusCode::kUnsupported, format("weight {}: wanted a block type", to_text(p.type)));
  if (p.K == 0 || p.N == 0) return Status(StatusCode::kUnsupported, "an empty weight");
  const int64_t packed_x = aligned_floats(p.M * p.K), packed_y = aligned_floats(p.M * p.N);
  const int64_t workspace = 4 * (packed_x + packed_y) + p.M * p.quantized_bytes();
  auto launch = [=](const LaunchArgs& args) {
    touch_end(args, workspace);
    auto* room = static_cast<float*>(args.workspace);
    for (int64_t e = 0; e < rows.E; ++e) {
      const PackedSlots slots{rows, args, e};
      const int64_t taken = slots.count();
      float* y = args.out<float>(0);
      float* to = slots.whole(taken) ? y + slots.first(0) * p.N : room + packed_x;
      if (taken > 0)
        multiply(p, args.in<std::byte>(1) + e * p.expert_bytes(),
                 slots.pack(args.in<float>(0), p.K, taken, room), taken,
                 reinterpret_cast<std::byte*>(room + packed_x + packed_y), to, args.pool);
      if (!slots.whole(taken)) slots.unpack(to, p.N, y);
    }
  };
  const double flops = 2.0 * double(rows.E) * double(p.M) * double(p.K) * double(p.N);
  PreparedKernel prepared = simd_prepared(spec, flops, make_kernel(launch), workspace);
  if (!p.rounds) prepared.efficiency = 0.7;
  return prepared;
}

}  // namespace tessera::cpu
