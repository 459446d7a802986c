#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/grouping.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Slots [E, B, S, C] of this shard, and the row in them of a choice (expert, slot) of a token of sequence b.
struct Slots {
  int64_t E, B, S, C;
  FactorIndex experts, slots;

  Slots(const KernelSpec& spec, std::span<const int64_t> dims)
      : E(dims[0]), B(dims[1]), S(dims[2]), C(dims[3]), experts(spec.factor('e')), slots(spec.factor('s')) {}
  // Row of C; -1 for a choice that was dropped or whose slot is on another shard.
  __device__ int64_t row(int32_t expert, int32_t slot, int64_t b) const {
    const int64_t e = experts.to_local(expert), s = slots.to_local(slot);
    return e < 0 || e >= E || s < 0 || s >= S ? -1 : (e * B + b) * S + s;
  }
};

template <class T>
struct Dispatch {
  const T* x;
  const int32_t* token;
  T* y;
  int64_t B, tokens, S, C;
  FactorIndex t;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t r) const {
    const int64_t row = t.to_local(token[r]), b = r / S % B;
    const bool here = row >= 0 && row < tokens;
    team.each(C, [&](int64_t c) { y[r * C + c] = here ? x[(b * tokens + row) * C + c] : T(0.0f); });
  }
};

// The token, of all sequences, that slot i = (expert, sequence, slot) holds.
struct TokenOfSlot {
  const int32_t* token;
  int64_t B, S, tokens;
  FactorIndex t;
  __device__ int64_t operator()(int64_t i) const {
    const int64_t row = t.to_local(token[i]);
    return row >= 0 && row < tokens ? i / S % B * tokens + row : -1;
  }
};

template <class T>
struct Combine {
  const T* y;
  const int32_t *expert, *slot;
  const T* gate;
  T* z;
  int64_t tokens, K;
  Slots slots;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t r) const {
    team.each(slots.C, [&](int64_t c) {
      Wide<T> sum = 0;
      for (int64_t at = r * K; at < (r + 1) * K; ++at) {
        const int64_t row = slots.row(expert[at], slot[at], r / tokens);
        if (row >= 0) sum += widen(gate[at]) * widen(y[row * slots.C + c]);
      }
      z[r * slots.C + c] = narrow<T>(sum);
    });
  }
};

// A slot has one owner, so choices write to rows of their own.
template <class T>
struct CombineGradInput {
  const T* dz;
  const int32_t *expert, *slot;
  const T* gate;
  T* dy;
  int64_t tokens, K;
  Slots slots;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t at) const {
    const int64_t r = at / K, row = slots.row(expert[at], slot[at], r / tokens);
    if (row < 0) return;
    const Wide<T> weight = widen(gate[at]);
    team.each(slots.C,
              [&](int64_t c) { dy[row * slots.C + c] = narrow<T>(weight * widen(dz[r * slots.C + c])); });
  }
};

template <class T>
struct CombineGradGate {
  const T* y;
  const int32_t *expert, *slot;
  const T* dz;
  T* dgate;
  int64_t tokens, K;
  Slots slots;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t at) const {
    const int64_t r = at / K, row = slots.row(expert[at], slot[at], r / tokens);
    Wide<T> sum = 0;
    if (row >= 0)
      team.each(slots.C, [&](int64_t c) { sum += widen(y[row * slots.C + c]) * widen(dz[r * slots.C + c]); });
    sum = team.sum(sum);
    if (team.rank == 0) dgate[at] = narrow<T>(sum);
  }
};

}  // namespace

// x [B, T, C], token [E, B, S] -> [E, B, S, C]. Tokens are untrusted: one outside this shard gives 0.
Result<PreparedKernel> prepare_moe_dispatch(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.input_dims(0)[0], tokens = spec.input_dims(0)[1], C = spec.input_dims(0)[2];
    const int64_t S = spec.input_dims(1)[2], count = spec.input_elements(1);
    const FactorIndex t(spec.factor('t'));
    return by_rows(spec, count, C, [=](const LaunchArgs& args) {
      return Dispatch<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), B, tokens, S, C, t};
    });
  });
}

// dy [E, B, S, C], token [E, B, S] -> dx [B, T, C]. Slots grouped by token make the tokens independent.
Result<PreparedKernel> prepare_moe_dispatch_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t S = spec.input_dims(0)[2], C = spec.input_dims(0)[3], count = spec.input_elements(1);
    const int64_t B = spec.output_dims(0)[0], tokens = spec.output_dims(0)[1];
    if (count > INT32_MAX || B * tokens > INT32_MAX)
      return Status(StatusCode::kUnsupported,
                    format("{} slots and {} tokens, at most 2^31 - 1", count, B * tokens));
    const FactorIndex t(spec.factor('t'));
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const TokenOfSlot token_of{args.in<int32_t>(1), B, S, tokens, t};
          const Groups groups = launch_grouping(args.stream, token_of, B * tokens, count, args.workspace);
          launch_group_sums(args.stream, args.in<T>(0), args.out<T>(0), B * tokens, C, groups);
        }),
        Groups::workspace_bytes(B * tokens, count));
  });
}

// y [E, B, S, C], expert, slot, gate [B, T, K] -> [B, T, C]
Result<PreparedKernel> prepare_moe_combine(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.input_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2];
    return by_rows(spec, slots.B * tokens, slots.C, [=](const LaunchArgs& args) {
      return Combine<T>{
          args.in<T>(0), args.in<int32_t>(1), args.in<int32_t>(2), args.in<T>(3), args.out<T>(0), tokens, K,
          slots};
    });
  });
}

// dz [B, T, C], expert, slot, gate [B, T, K] -> dy [E, B, S, C]
Result<PreparedKernel> prepare_moe_combine_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.output_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2];
    const auto bytes = static_cast<size_t>(spec.output_elements(0)) * sizeof(T);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          if (bytes > 0) cudaMemsetAsync(args.outputs[0], 0, bytes, args.stream);
                          launch_rows(
                              args.stream, slots.B * tokens * K, slots.C,
                              CombineGradInput<T>{args.in<T>(0), args.in<int32_t>(1), args.in<int32_t>(2),
                                                  args.in<T>(3), args.out<T>(0), tokens, K, slots});
                        }));
  });
}

// y [E, B, S, C], expert, slot [B, T, K], dz [B, T, C] -> dgate [B, T, K]
Result<PreparedKernel> prepare_moe_combine_grad_gate(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.input_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2];
    return by_rows(spec, slots.B * tokens * K, slots.C, [=](const LaunchArgs& args) {
      return CombineGradGate<T>{
          args.in<T>(0), args.in<int32_t>(1), args.in<int32_t>(2), args.in<T>(3), args.out<T>(0), tokens, K,
          slots};
    });
  });
}

}  // namespace tessera::cuda
