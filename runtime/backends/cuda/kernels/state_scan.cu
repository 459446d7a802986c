// Scans token by token: a block has some columns of a state in shared memory. A column's sums are added in one order, whatever
// the step that a token comes in.
#include "runtime/backends/cuda/kernels/attention.cuh"
#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/scan_tokens.cuh"
#include "runtime/backends/cuda/kernels/state_scan.cuh"

namespace tessera::cuda {

namespace {

template <int kColumns, class T, class S, class Tokens>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(ScanShape e, ScanOperands<T, S> x, Tokens tokens, T* out) {
  using W = Wide<T>;
  using Block = ScanBlock<kColumns>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ W dots[Block::kWarps * kColumns], results[Block::kWarps * kColumns];
  W* const state = reinterpret_cast<W*>(shared);  // [K][kColumns]; a thread touches its own numbers alone
  const Block block;
  const int64_t tiles = (e.V + kColumns - 1) / kColumns, tile = blockIdx.x % tiles;
  const int64_t h = blockIdx.x / tiles % e.H, sequence = blockIdx.x / tiles / e.H, g = h / e.group();
  const int64_t v = tile * kColumns + block.column;
  const bool is_there = v < e.V;
  const int64_t count = tokens.count(sequence);
  if (count == 0) return;
  W* const kept = tokens.state(sequence);
  const auto each_channel = [&](auto body) {
    for (int64_t i = block.slice; i < e.K; i += Block::kSlices) body(i, state[i * kColumns + block.column]);
  };
  each_channel([&](int64_t i, W& s) { s = kept != nullptr && is_there ? kept[(h * e.K + i) * e.V + v] : W(0); });
  for (int64_t n = 0; n < count; ++n) {
    const int64_t token = tokens.token(sequence, n), row = token * e.H + h;
    const int64_t keys = (token * e.G + g) * e.K;
    const T *key = x.k + keys, *query = x.q + keys;
    const W* log_decay = x.log_decay + row * e.decays();
    const bool starts = tokens.starts(token);
    const W factor = e.decays_by_channel ? W(0) : exp(log_decay[0]);
    W dot = 0;
    each_channel([&](int64_t i, W& s) {
      const W before = starts ? W(0) : s;
      s = before * (e.decays_by_channel ? exp(log_decay[i]) : factor);
      dot += e.is_general() ? before * widen(x.a[keys + i]) : s * widen(key[i]);
    });
    // Both sums have a barrier: dots and results are read before they are written again.
    dot = block.sum_slices(dot, dots);
    W change = is_there ? widen(x.v[row * e.V + v]) : W(0);
    if (e.rule == ScanRule::kDelta) change -= dot;
    if (!e.is_general()) change *= widen(x.beta[row]);
    W result = 0;
    each_channel([&](int64_t i, W& s) {
      s += widen(key[i]) * change;
      if (e.is_general()) s += widen(x.b[keys + i]) * dot;
      result += s * widen(query[i]);
    });
    result = block.sum_slices(result, results);
    if (block.slice == 0 && is_there) out[row * e.V + v] = narrow<T>(static_cast<W>(e.scale) * result);
  }
  if (kept != nullptr && is_there) each_channel([&](int64_t i, W& s) { kept[(h * e.K + i) * e.V + v] = s; });
}

// Launches a block for every head and tile of columns of `sequences`; columns by what shared memory holds.
template <class T, class S, class Tokens>
void launch_scan(const LaunchArgs& args, const ScanShape& e, const ScanOperands<T, S>& x, const Tokens& tokens,
                 int64_t sequences) {
  const auto launch = [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    const int64_t blocks = sequences * e.H * ((e.V + kColumns - 1) / kColumns);
    if (blocks <= 0) return;
    const auto bytes = static_cast<size_t>(e.K * kColumns) * sizeof(Wide<T>);
    scan_kernel<kColumns, T, S, Tokens>
        <<<static_cast<unsigned>(blocks), kScanThreads, bytes, args.stream>>>(e, x, tokens, args.out<T>(0));
  };
  constexpr int64_t kWideBytes = 32 * 1024;
  if (e.K * 32 * static_cast<int64_t>(sizeof(Wide<T>)) <= kWideBytes)
    launch(std::integral_constant<int, 32>{});
  else
    launch(std::integral_constant<int, 8>{});
}

// Success if a block of 8 columns has room in shared memory, and the grid is one.
template <class W>
Status check_scan(const ScanShape& e, int64_t sequences) {
  constexpr int64_t kMostBytes = 40 * 1024, kMostGrid = int64_t{1} << 31;
  if (e.K * 8 * static_cast<int64_t>(sizeof(W)) > kMostBytes)
    return Status(StatusCode::kUnsupported, format("keys of {} channels: at most {}", e.K,
                                                   kMostBytes / 8 / static_cast<int64_t>(sizeof(W))));
  if (sequences * e.H * ((e.V + 7) / 8) >= kMostGrid)
    return Status(StatusCode::kUnsupported, format("{} heads of {} sequences: the grid is too large", e.H, sequences));
  return {};
}

PreparedKernel scan_prepared(const KernelSpec& spec, const ScanShape& e, std::unique_ptr<Kernel> kernel,
                             int64_t workspace_bytes) {
  PreparedKernel prepared = memory_bound(spec, std::move(kernel), workspace_bytes);
  prepared.flops = e.flops();
  prepared.efficiency = 0.05;
  return prepared;
}

}  // namespace

// q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H] or a, b [B, T, G, K],
// segments [B, T] -> o [B, T, H, V]
Result<PreparedKernel> prepare_state_scan(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_beta<T>(spec.input_dtype(4), spec.input_dtype(0), [&](auto beta) -> Result<PreparedKernel> {
      using S = decltype(beta);
      const ScanShape e(spec, 0);
      TSR_RETURN_IF_ERROR(check_scan<Wide<T>>(e, e.B));
      const int segments = e.operand_count();
      const bool has_segments = spec.input_count() > segments;
      return scan_prepared(spec, e, make_kernel([=](const LaunchArgs& args) {
                             const int32_t* numbers = has_segments ? args.in<int32_t>(segments) : nullptr;
                             launch_scan(args, e, ScanOperands<T, S>(e, args, 0), WholeTokens<Wide<T>>{numbers, e.T}, e.B);
                           }),
                           0);
    });
  });
}

// state [R, H, K, V], those operands with tokens [B, N], row, position [B, N] -> o [B, N, H, V], state
Result<PreparedKernel> prepare_state_scan_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    return dispatch_beta<T>(spec.input_dtype(5), spec.input_dtype(1), [&](auto beta) -> Result<PreparedKernel> {
      using S = decltype(beta);
      const ScanShape e(spec, 1);
      const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T;
      const int row = 1 + e.operand_count();
      TSR_RETURN_IF_ERROR(check_scan<W>(e, R));
      const int64_t state_bytes = spec.input_elements(0) * static_cast<int64_t>(sizeof(W));
      return scan_prepared(spec, e, make_kernel([=](const LaunchArgs& args) -> Status {
                             const RowTokens lists(R, tokens, args.in<int32_t>(row), args.workspace);
                             TSR_RETURN_IF_ERROR(begin_rows(args, lists, args.out<T>(0), e.H * e.V, state_bytes));
                             const StepTokens<W> step{lists, args.in<int32_t>(row + 1), args.out<W>(1), e.H * e.K * e.V};
                             launch_scan(args, e, ScanOperands<T, S>(e, args, 1), step, R);
                             return {};
                           }),
                           RowTokens::bytes(R, tokens));
    });
  });
}

}  // namespace tessera::cuda
