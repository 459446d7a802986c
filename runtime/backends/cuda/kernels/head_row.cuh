// HeadRow: the statistics, loss and gradient of one row of the head's logits (linear_cross_entropy.cu).
#pragma once

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// HeadPass: with a split vocabulary the rows' maxima, then the sums above them, then the gradient; else the
// loss, with the gradient or without. kTokens and kTokensGrad: the losses of rows, apart.
enum class HeadPass { kMax, kSums, kLoss, kGrad, kGradFinish, kTokens, kTokensGrad };
__host__ __device__ inline bool makes_loss(HeadPass pass) {
  return pass == HeadPass::kLoss || pass == HeadPass::kGrad;
}
__host__ __device__ inline bool reads_statistics(HeadPass pass) {
  return pass == HeadPass::kGradFinish || pass == HeadPass::kTokensGrad;
}
__host__ __device__ inline bool makes_gradient(HeadPass pass) {
  return pass == HeadPass::kGrad || reads_statistics(pass);
}

// Computes the statistics and loss of a row of logits, and its gradient in place. Pointers are those of the
// chunk's first row.
template <class T>
struct HeadRow {
  using W = Wide<T>;
  HeadPass pass;
  int64_t V, ld;
  T* logits;
  const int32_t* labels;
  const W *m_in, *s_in, *scale, *dloss;
  W *m_out, *s_out, *picked_out, *loss_out;
  FactorIndex v;

  static constexpr int kVec = 16 / static_cast<int>(sizeof(T));

  // Threads of a row, which is read twice, the second time out of the L2 cache. Two blocks of 640 threads on
  // each of 132 multiprocessors have 26 MB of 16-bit logits in work with 50,000 tokens; the cache holds 50
  // MB. More and smaller blocks would evict each other's rows.
  static constexpr int kTeam = 640;

  // Logits of 16 bits use the approximation of the special function unit (2 ulp of f32 and |x| 2^-24): a row
  // takes two exponentials an element, and exact ones, with divisions, would take longer than the memory.
  static __device__ W exponential(W x) {
    if constexpr (sizeof(T) == 2)
      return __expf(x);
    else
      return exp(x);
  }

  // Statistics: the maximum of a thread's logits, and the sum of exponentials above it, in one pass that
  // scales the sum down where the maximum grows. No branch, so that the packs of several turns are loaded at
  // once. A NaN does not change the maximum, but makes the sum NaN.
  struct Statistics {
    W m = minus_infinity<W>(), s = 0;
    template <int kCount>
    __device__ void add(const W (&x)[kCount], bool raises) {
      W top = m;
      if (raises) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) top = fmax(top, x[i]);
      }
      const W base = top == minus_infinity<W>() ? W(0) : top;
      if (raises) s *= exponential(m - base);
      m = top;
#pragma unroll
      for (int i = 0; i < kCount; ++i) s += exponential(x[i] - base);
    }
  };

  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    T* l = logits + row * ld;
    const int64_t whole = V / kVec * kVec;
    // The last elements, one at a time.
    const auto rest = [&](auto body) {
      for (int64_t c = whole + team.rank; c < V; c += Team::size) body(c);
    };
    W m, s;
    if (reads_statistics(pass)) {
      m = m_in[row];
      s = s_in[row];
    } else {
      const bool raises = pass != HeadPass::kSums;
      Statistics own;
      if (!raises) own.m = m_in[row];
      team.template packs<kVec>(whole, [&](int64_t c) {
        W x[kVec];
        load_pack(l + c, x);
        own.add(x, raises);
      });
      rest([&](int64_t c) {
        const W x[1] = {widen(l[c])};
        own.add(x, raises);
      });
      // A NaN makes both NaN.
      m = raises ? team.max(own.s == own.s ? own.m : own.s) : own.m;
      s = own.m == minus_infinity<W>() ? W(0) : raises ? own.s * exp(own.m - m) : own.s;
    }
    if (pass == HeadPass::kMax) {
      if (team.rank == 0) m_out[row] = m;
      return;
    }
    const int32_t label = labels[row];
    const int64_t at = v.to_local(label);
    const bool is_here = at >= 0 && at < V;
    // Whether this thread makes the label's gradient.
    const bool owns = is_here && (at < whole ? at / kVec : at - whole) % Team::size == team.rank;
    // Apart from the owner, the first thread alone needs the label's logit. It reads before the sum, after
    // which the owner overwrites it.
    const bool looks = owns || (is_here && team.rank == 0 && !reads_statistics(pass));
    const W picked = looks ? widen(l[at]) : W(0);
    if (!reads_statistics(pass)) s = team.sum(s);
    if (team.rank == 0) {
      if (pass == HeadPass::kSums) {
        s_out[row] = s;
        picked_out[row] = picked;
      }
      if (pass == HeadPass::kTokens) {
        m_out[row] = m;
        s_out[row] = s;
      }
      if (loss_out != nullptr) loss_out[row] = label < 0 ? W(0) : log(s) + m - picked;
    }
    if (!makes_gradient(pass)) return;
    if (label < 0) {
      const W none[kVec] = {};
      team.template packs<kVec>(whole, [&](int64_t c) { store_pack(l + c, none); });
      rest([&](int64_t c) { l[c] = narrow<T>(W(0)); });
      return;
    }
    const W factor = pass == HeadPass::kTokensGrad ? dloss[row] : *scale * *dloss, share = factor / s;
    const auto gradient = [&](W x) {
      if constexpr (sizeof(T) == 2)
        return exponential(x - m) * share;
      else
        return exponential(x - m) / s * factor;
    };
    team.template packs<kVec>(whole, [&](int64_t c) {
      W x[kVec];
      load_pack(l + c, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[i] = gradient(x[i]);
      store_pack(l + c, x);
    });
    rest([&](int64_t c) { l[c] = narrow<T>(gradient(widen(l[c]))); });
    if (owns) l[at] = narrow<T>(gradient(picked) - factor);
  }
};

}  // namespace tessera::cuda
