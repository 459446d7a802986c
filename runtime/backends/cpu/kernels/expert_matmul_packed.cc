// Expert matmuls on the packed f32 Gemm: one an expert. Where slots are empty, the taken slots of all
// sequences are first packed together, so that an expert's weight is read once and empty slots cost nothing.
// The loads, which are data, decide the extents: same data, same bits.
#include <algorithm>
#include <cstring>

#include "runtime/backends/cpu/kernels/expert_rows.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {
namespace {

// The taken slots of one expert: rows of `columns` values.
struct Packing {
  const ExpertRows& rows;
  const LaunchArgs& args;
  int64_t expert;

  int64_t count() const {
    int64_t sum = 0;
    for (int64_t b = 0; b < rows.B; ++b) sum += rows.taken(args, expert, b);
    return sum;
  }
  bool whole(int64_t taken) const { return taken == rows.B * rows.S; }
  int64_t first(int64_t b) const { return (expert * rows.B + b) * rows.S; }

  // The slots themselves when all are taken, else `room`, filled with the taken ones.
  const float* pack(const float* slots, int64_t columns, int64_t taken, float* room) const {
    if (whole(taken)) return slots + first(0) * columns;
    float* to = room;
    for (int64_t b = 0; b < rows.B; ++b) {
      const int64_t some = rows.taken(args, expert, b) * columns;
      to = std::copy_n(slots + first(b) * columns, some, to);
    }
    return room;
  }
  void unpack(const float* from, int64_t columns, float* slots) const {
    for (int64_t b = 0; b < rows.B; ++b) {
      const int64_t some = rows.taken(args, expert, b) * columns, all = rows.S * columns;
      float* to = slots + first(b) * columns;
      std::fill(std::copy_n(from, some, to), to + all, 0.0f);
      from += some;
    }
  }
};

// The largest workspace that matmuls of up to `most` taken rows need.
template <class GemmOf>
int64_t most_workspace(int64_t most, GemmOf&& gemm_of) {
  int64_t bytes = 0;
  for (int64_t taken = 1; taken <= most; ++taken)
    bytes = std::max(bytes, gemm_workspace_bytes(gemm_of(taken)));
  return bytes;
}

// Touches the end of the workspace. The loads, which are data, decide how much of it a run uses; the arena is
// sized for full loads. After this every run touches the same bytes, which can be compared with the plan.
void touch_end(const LaunchArgs& args, int64_t bytes) {
  if (bytes > 0) static_cast<char*>(args.workspace)[bytes - 1] = 0;
}

constexpr int64_t aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

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

Result<PreparedKernel> prepare_expert_matmul_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
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
  const int64_t room = packs ? aligned(most * K) + aligned(most * N) : 0;
  const int64_t workspace = room * int64_t{sizeof(float)} + (most == 0 ? 0 : most_workspace(most, gemm_of));
  auto launch = [=](const LaunchArgs& args) {
    touch_end(args, workspace);
    float* packed_x = static_cast<float*>(args.workspace);
    float* packed_y = packs ? packed_x + aligned(most * K) : nullptr;
    for (int64_t e = 0; e < rows.E; ++e) {
      const Packing packing{rows, args, e};
      const int64_t taken = packing.count();
      float* y = args.out<float>(0);
      float* to = packing.whole(taken) ? y + packing.first(0) * N : packed_y;
      if (taken > 0)
        run_gemm(gemm_of(taken),
                 {.a = packing.pack(args.in<float>(0), K, taken, packed_x),
                  .b = args.in<float>(1) + e * K * N,
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
  const int64_t room = packs ? aligned(most * M) + aligned(most * N) : 0;
  const int64_t workspace = room * int64_t{sizeof(float)} + (most == 0 ? 0 : most_workspace(most, gemm_of));
  auto launch = [=](const LaunchArgs& args) {
    touch_end(args, workspace);
    float* packed_a = static_cast<float*>(args.workspace);
    float* packed_b = packs ? packed_a + aligned(most * M) : nullptr;
    for (int64_t e = 0; e < rows.E; ++e) {
      const Packing packing{rows, args, e};
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
