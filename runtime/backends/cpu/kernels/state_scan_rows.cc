// Reference scan of a step whose tokens belong to many sequences, one column of a state [K] at a time.
#include <algorithm>
#include <cstddef>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"
#include "runtime/backends/cpu/kernels/state_scan_column.h"

namespace tessera::cpu {

namespace {

template <class F>
struct ScanRows {
  ScanShape e;
  ScanOperands<F> x;
  const int32_t* position;
  F *state, *out;

  // The tokens of a row, column v of value head h; `column` [K] is scratch.
  void run(const RowTokens& tokens, int64_t row, int64_t h, int64_t v, F* column) const {
    F* const kept = state + (row * e.H + h) * e.K * e.V + v;  // K numbers, V apart
    for (int64_t i = 0; i < e.K; ++i) column[i] = kept[i * e.V];
    for (const int64_t token : tokens.of(row)) {
      if (position[token] == 0) std::fill_n(column, e.K, F(0));
      out[e.value_row(token, h) * e.V + v] = scan_column(e, x, token, h, v, column);
    }
    for (int64_t i = 0; i < e.K; ++i) kept[i * e.V] = column[i];
  }
};

}  // namespace

// state [R, H, K, V], q, k [B, N, G, K], v [B, N, H, V], log_decay [B, N, H] or [B, N, H, K], beta [B, N, H] or
// a, b [B, N, G, K], row, position [B, N] -> o [B, N, H, V], state
Result<PreparedKernel> prepare_state_scan_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ScanShape e(spec, 1);
    const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
    const int row = 1 + e.operand_count();
    const int64_t lists = (RowTokens::bytes(R, tokens) + 63) / 64 * 64;
    auto launch = [=](const LaunchArgs& args) {
      const RowTokens by_row(R, args.in<int32_t>(row), tokens, args.workspace);
      const ScanRows<F> scan{e, ScanOperands<F>(e, args, 1), args.in<int32_t>(row + 1), args.out<F>(1), args.out<F>(0)};
      begin_rows<F>(args, by_row, e.H * e.V, state_count);
      args.pool.parallel_for(by_row.active_count() * e.H, [&](int64_t task) {
        F* column = reinterpret_cast<F*>(static_cast<std::byte*>(args.workspace) + lists) + task * e.K;
        for (int64_t v = 0; v < e.V; ++v) scan.run(by_row, by_row.active(task / e.H), task % e.H, v, column);
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.flops(), lists + R * e.H * e.K * int64_t{sizeof(F)});
  });
}

}  // namespace tessera::cpu
