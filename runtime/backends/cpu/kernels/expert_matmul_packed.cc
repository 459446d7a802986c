// Expert matmuls on the packed f32 Gemm: one an expert. Where slots are empty, the taken ones are first packed
// together. The loads, which are data, decide the extents: same data, same bits.
#include <algorithm>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/kernels/expert_slots.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kWidenGrain = int64_t{1} << 14;  // numbers of a weight a task

// The largest workspace that matmuls of up to `most` taken rows need.
template <class GemmOf>
int64_t most_workspace(int64_t most, GemmOf&& gemm_of) {
  int64_t bytes = 0;
  for (int64_t taken = 1; taken <= most; ++taken)
    bytes = std::max(bytes, gemm_workspace_bytes(gemm_of(taken)));
  return bytes;
}

PreparedKernel prepared(std::unique_ptr<Kernel> kernel, const ExpertRows& rows, int64_t k, int64_t n,
                        int64_t workspace) {
  const double e = double(rows.E), m = double(rows.B * rows.S);
  PreparedKernel p;
  p.kernel = std::move(kernel);
  p.workspace_bytes = workspace;
  p.flops = 2 * e * m * double(k) * double(n);
  p.bytes = 4 * e * (m * double(k) + double(k) * double(n) + m * double(n));
  p.efficiency = m <= 8 ? 0.4 : 0.7;
  return p;
}

}  // namespace

// A weight in 16 bits is widened in the workspace, an expert with a token at a time.
Result<PreparedKernel> prepare_expert_matmul_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  const DType stored = spec.input_dtype(1);
  const bool widens = is_half_type(stored);
  if (spec.input_dtype(0) != DType::kF32 || (stored != DType::kF32 && !widens))
    return Status(StatusCode::kUnsupported,
                  format("dtypes {} and {}: this kernel computes in f32, with weights of f32, bf16 or f16",
                         to_text(spec.input_dtype(0)), to_text(stored)));
  const ExpertRows rows(spec);
  const bool tf32 = spec.i64("allow_tf32") == 1;
  const int64_t K = spec.input_dims(0)[3], N = spec.output_dims(0)[3], most = rows.B * rows.S;
  const bool trans = spec.i64("trans_w") == 1;
  const auto gemm_of = [=](int64_t taken) {
    Gemm gemm;
    gemm.tf32 = tf32;
    gemm.m = taken, gemm.n = N, gemm.k = K;
    gemm.a_row = K;
    gemm.b_row = trans ? 1 : N;
    gemm.b_col = trans ? K : 1;
    return gemm;
  };
  const bool packs = spec.input_count() == 3;
  const int64_t slots = packs ? aligned_floats(most * K) + aligned_floats(most * N) : 0;
  const int64_t room = slots + (widens ? aligned_floats(K * N) : 0);
  const int64_t workspace = room * int64_t{sizeof(float)} + (most == 0 ? 0 : most_workspace(most, gemm_of));
  auto launch = [=](const LaunchArgs& args) {
    touch_end(args, workspace);
    float* packed_x = static_cast<float*>(args.workspace);
    float* packed_y = packs ? packed_x + aligned_floats(most * K) : nullptr;
    const auto weight_of = [&](int64_t e) -> const float* {
      if (!widens) return args.in<float>(1) + e * K * N;
      float* widened = packed_x + slots;
      args.pool.parallel_ranges(K * N, kWidenGrain, [&](int64_t begin, int64_t end) {
        decode_blocks(stored, args.in<std::byte>(1) + dtype_bytes(stored, e * K * N + begin), widened + begin,
                      end - begin);
      });
      return widened;
    };
    for (int64_t e = 0; e < rows.E; ++e) {
      const PackedSlots packing{rows, args, e};
      const int64_t taken = packing.count();
      float* y = args.out<float>(0);
      float* to = packing.whole(taken) ? y + packing.first(0) * N : packed_y;
      if (taken > 0)
        run_gemm(gemm_of(taken),
                 {.a = packing.pack(args.in<float>(0), K, taken, packed_x),
                  .b = weight_of(e),
                  .c = to,
                  .workspace = static_cast<float*>(args.workspace) + room},
                 args.pool);
      if (!packing.whole(taken)) packing.unpack(packed_y, N, y);
    }
  };
  return prepared(make_kernel(launch), rows, K, N, workspace);
}

// dw = x^T dy; with trans_w its transpose, dy^T x.
Result<PreparedKernel> prepare_expert_matmul_weight_grad_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ExpertRows rows(spec);
  const bool tf32 = spec.i64("allow_tf32") == 1;
  const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
  const int64_t M = spec.input_dims(left)[3], N = spec.input_dims(right)[3], most = rows.B * rows.S;
  const auto gemm_of = [=](int64_t taken) {
    Gemm gemm;
    gemm.tf32 = tf32;
    gemm.m = M, gemm.n = N, gemm.k = taken;
    gemm.a_row = 1;
    gemm.a_col = M;
    gemm.b_row = N;
    return gemm;
  };
  const bool packs = spec.input_count() == 3;
  const int64_t room = packs ? aligned_floats(most * M) + aligned_floats(most * N) : 0;
  const int64_t workspace = room * int64_t{sizeof(float)} + (most == 0 ? 0 : most_workspace(most, gemm_of));
  auto launch = [=](const LaunchArgs& args) {
    touch_end(args, workspace);
    float* packed_a = static_cast<float*>(args.workspace);
    float* packed_b = packs ? packed_a + aligned_floats(most * M) : nullptr;
    for (int64_t e = 0; e < rows.E; ++e) {
      const PackedSlots packing{rows, args, e};
      const int64_t taken = packing.count();
      run_gemm(gemm_of(taken),
               {.a = packing.pack(args.in<float>(left), M, taken, packed_a),
                .b = packing.pack(args.in<float>(right), N, taken, packed_b),
                .c = args.out<float>(0) + e * M * N,
                .workspace = static_cast<float*>(args.workspace) + room},
               args.pool);
    }
  };
  return prepared(make_kernel(launch), rows, M, N, workspace);
}

}  // namespace tessera::cpu
