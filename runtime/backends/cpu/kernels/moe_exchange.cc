#include <algorithm>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Slots [E, B, S, C] of this shard, and the row in them of a choice (expert, slot) of a token of sequence b.
struct Slots {
  int64_t E, B, S, C;
  FactorIndex experts, slots;

  Slots(const KernelSpec& spec, std::span<const int64_t> dims)
      : E(dims[0]), B(dims[1]), S(dims[2]), C(dims[3]), experts(spec.factor('e')), slots(spec.factor('s')) {}

  // Row of C; -1 for a choice that was dropped or whose slot is on another shard.
  int64_t row(int32_t expert, int32_t slot, int64_t b) const {
    const int64_t e = experts.to_local(expert), s = slots.to_local(slot);
    return e < 0 || e >= E || s < 0 || s >= S ? -1 : (e * B + b) * S + s;
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
    auto launch = [=](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* token = args.in<int32_t>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(count, row_grain(C), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t row = t.to_local(token[r]), b = r / S % B;
          if (row >= 0 && row < tokens) {
            std::copy_n(x + (b * tokens + row) * C, C, y + r * C);
          } else {
            std::fill_n(y + r * C, C, T(0));
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 0);
  });
}

// dy [E, B, S, C], token [E, B, S] -> dx [B, T, C]. A counting sort by token in every sequence (stable, so
// that experts stay in order) makes the tokens independent.
Result<PreparedKernel> prepare_moe_dispatch_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t E = spec.input_dims(0)[0], S = spec.input_dims(0)[2], C = spec.input_dims(0)[3];
    const int64_t B = spec.output_dims(0)[0], tokens = spec.output_dims(0)[1];
    const FactorIndex t(spec.factor('t'));
    auto launch = [=](const LaunchArgs& args) {
      const T* dy = args.in<T>(0);
      const int32_t* token = args.in<int32_t>(1);
      T* dx = args.out<T>(0);
      int64_t* ends = static_cast<int64_t*>(args.workspace);  // [B, T + 1]: where the slots of a token end
      int64_t* sorted = ends + B * (tokens + 1);              // [B, E * S]: rows of dy, by token
      const auto local = [&](int64_t row) {
        const int64_t at = t.to_local(token[row]);
        return at < tokens ? at : -1;
      };
      args.pool.parallel_ranges(B, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          int64_t *first = ends + b * (tokens + 1), *rows = sorted + b * E * S;
          std::fill_n(first, tokens + 1, int64_t{0});
          const auto each = [&](auto&& body) {
            for (int64_t e = 0; e < E; ++e)
              for (int64_t s = 0; s < S; ++s) {
                const int64_t row = (e * B + b) * S + s;
                if (const int64_t at = local(row); at >= 0) body(at, row);
              }
          };
          each([&](int64_t at, int64_t) { ++first[at + 1]; });
          for (int64_t i = 0; i < tokens; ++i) first[i + 1] += first[i];
          each([&](int64_t at, int64_t row) { rows[first[at]++] = row; });
        }
      });
      args.pool.parallel_ranges(B * tokens, row_grain(C), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t b = r / tokens, i = r % tokens;
          const int64_t* to = ends + b * (tokens + 1);
          const int64_t from = i == 0 ? 0 : to[i - 1];
          for (int64_t c0 = 0; c0 < C; c0 += kColumnBlock) {
            const int64_t width = std::min(kColumnBlock, C - c0);
            double sums[kColumnBlock] = {};
            for (int64_t n = from; n < to[i]; ++n)
              for (int64_t c = 0; c < width; ++c) sums[c] += double(dy[sorted[b * E * S + n] * C + c0 + c]);
            for (int64_t c = 0; c < width; ++c) dx[r * C + c0 + c] = T(sums[c]);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(spec.input_elements(0)),
                            B * (tokens + 1 + E * S) * int64_t{sizeof(int64_t)});
  });
}

// y [E, B, S, C], expert, slot, gate [B, T, K] -> [B, T, C]
Result<PreparedKernel> prepare_moe_combine(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.input_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2], C = slots.C;
    auto launch = [=](const LaunchArgs& args) {
      const T *y = args.in<T>(0), *gate = args.in<T>(3);
      const int32_t *expert = args.in<int32_t>(1), *slot = args.in<int32_t>(2);
      T* z = args.out<T>(0);
      args.pool.parallel_ranges(slots.B * tokens, row_grain(C * K), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t c0 = 0; c0 < C; c0 += kColumnBlock) {
            const int64_t width = std::min(kColumnBlock, C - c0);
            double sums[kColumnBlock] = {};
            for (int64_t at = r * K; at < (r + 1) * K; ++at) {
              const int64_t row = slots.row(expert[at], slot[at], r / tokens);
              if (row < 0) continue;
              const double weight = double(gate[at]);
              for (int64_t c = 0; c < width; ++c) sums[c] += weight * double(y[row * C + c0 + c]);
            }
            for (int64_t c = 0; c < width; ++c) z[r * C + c0 + c] = T(sums[c]);
          }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(slots.B * tokens * K * C));
  });
}

// dz [B, T, C], expert, slot, gate [B, T, K] -> dy [E, B, S, C]. A slot has one owner, so tokens write to
// rows of their own.
Result<PreparedKernel> prepare_moe_combine_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.output_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2], C = slots.C;
    auto launch = [=](const LaunchArgs& args) {
      const T *dz = args.in<T>(0), *gate = args.in<T>(3);
      const int32_t *expert = args.in<int32_t>(1), *slot = args.in<int32_t>(2);
      T* dy = args.out<T>(0);
      args.pool.parallel_ranges(slots.E * slots.B * slots.S, row_grain(C), [&](int64_t begin, int64_t end) {
        std::fill(dy + begin * C, dy + end * C, T(0));
      });
      args.pool.parallel_ranges(slots.B * tokens, row_grain(C * K), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * K; at < end * K; ++at) {
          const int64_t r = at / K, row = slots.row(expert[at], slot[at], r / tokens);
          if (row < 0) continue;
          const double weight = double(gate[at]);
          for (int64_t c = 0; c < C; ++c) dy[row * C + c] = T(weight * double(dz[r * C + c]));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(slots.B * tokens * K * C));
  });
}

// y [E, B, S, C], expert, slot [B, T, K], dz [B, T, C] -> dgate [B, T, K]
Result<PreparedKernel> prepare_moe_combine_grad_gate(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Slots slots(spec, spec.input_dims(0));
    const int64_t tokens = spec.input_dims(1)[1], K = spec.input_dims(1)[2], C = slots.C;
    auto launch = [=](const LaunchArgs& args) {
      const T *y = args.in<T>(0), *dz = args.in<T>(3);
      const int32_t *expert = args.in<int32_t>(1), *slot = args.in<int32_t>(2);
      T* dgate = args.out<T>(0);
      args.pool.parallel_ranges(slots.B * tokens, row_grain(C * K), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * K; at < end * K; ++at) {
          const int64_t r = at / K, row = slots.row(expert[at], slot[at], r / tokens);
          double sum = 0;
          if (row >= 0)
            for (int64_t c = 0; c < C; ++c) sum += double(y[row * C + c]) * double(dz[r * C + c]);
          dgate[at] = T(sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(slots.B * tokens * K * C));
  });
}

}  // namespace tessera::cpu
