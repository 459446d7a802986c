// The gradient of a scan in f32: a task has one key head of one sequence, whose columns of states it takes a few at a time, as
// rows of K channels. A first scan keeps the states at every 64th token; from them each chunk is scanned again, last chunk
// first, and then gone through backwards.
#include <algorithm>
#include <utility>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/state_scan_shape.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/state_scan_grad_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_STATE_SCAN_GRAD_SIMD_CC_ONCE_
#define TSR_STATE_SCAN_GRAD_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kChunk = 64;   // tokens
constexpr int64_t kColumns = 4;  // of a state, at once

// Operands of one sequence and key head, gradients that sum over the columns of its value heads, and scratch.
struct ScanGradHead {
  ScanShape e;
  const float *q = nullptr, *k = nullptr;  // row t of the key head is t * G * K further
  const float *a = nullptr, *b = nullptr;  // with rule general, as k
  const float *v = nullptr, *log_decay = nullptr, *beta = nullptr, *dout = nullptr;  // of the sequence: [T, H, ...]
  const int32_t* segments = nullptr;                                                 // may be null
  float *dq = nullptr, *dk = nullptr, *da = nullptr, *db = nullptr;                  // as q and k
  float *dv = nullptr, *dlog_decay = nullptr, *dbeta = nullptr;                      // as v
  float* decay = nullptr;   // [T, decays]: exponentials, of one value head
  float* kept = nullptr;    // [chunks, kColumns, K]: states before chunks
  float* before = nullptr;  // [kChunk + 1, kColumns, K]: states before tokens
  float* read = nullptr;    // [kChunk, kColumns]: v - S^T k, with rule general S^T a
  float* slope = nullptr;   // [kColumns, K]: the gradient of the state

  int64_t chunks() const { return (e.T + kChunk - 1) / kChunk; }
};

// Columns [first, first + count) of a value head. Scratch has kColumns; those that are not there hold zeros.
struct ScanColumns {
  int64_t head, first, count;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The decay of the channels at `at`.
template <bool kByChannel, class At>
HWY_INLINE VR decay_at(const float* decay, const At& at) {
  return kByChannel ? at.load(decay) : hn::Set(DR(), decay[0]);
}

// A number of each column, in all lanes.
HWY_INLINE void set_columns(const float (&from)[kColumns], VR (&to)[kColumns]) {
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) to[c] = hn::Set(DR(), from[c]);
}

// One token of the scan: `state` [kColumns, K] becomes what follows it, at `next`; `read` becomes v - S^T k, with rule general
// S^T a.
template <bool kByChannel, ScanRule kRule>
HWY_INLINE void scan_token(const ScanGradHead& x, int64_t t, int64_t row, const float* state, float* next,
                           const float (&value)[kColumns], float (&read)[kColumns]) {
  const DR d;
  constexpr bool kIsGeneral = kRule == ScanRule::kGeneral;
  const int64_t K = x.e.K, keys = t * x.e.G * K;
  const float *key = x.k + keys, *decay = x.decay + t * x.e.decays();
  const float *a = kIsGeneral ? x.a + keys : nullptr, *b = kIsGeneral ? x.b + keys : nullptr;
  std::copy_n(value, kColumns, read);
  if constexpr (kRule != ScanRule::kAdd) {
    VR dot[kColumns] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for_vectors(0, K, [&](auto at) HWY_ATTR {
      const VR factor = kIsGeneral ? at.load(a) : hn::Mul(at.load(key), decay_at<kByChannel>(decay, at));
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) dot[c] = hn::MulAdd(factor, at.load(state + c * K), dot[c]);
    });
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) read[c] = kIsGeneral ? sum_of(dot[c]) : value[c] - sum_of(dot[c]);
  }
  VR change[kColumns], read_all[kColumns];
  set_columns(read, read_all);
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c)
    change[c] = hn::Set(d, kIsGeneral ? value[c] : x.beta[row] * read[c]);
  for_vectors(0, K, [&](auto at) HWY_ATTR {
    const VR key_at = at.load(key), factor = decay_at<kByChannel>(decay, at);
    const VR b_at = kIsGeneral ? at.load(b) : hn::Zero(d);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      VR after = hn::MulAdd(key_at, change[c], hn::Mul(factor, at.load(state + c * K)));
      if constexpr (kIsGeneral) after = hn::MulAdd(b_at, read_all[c], after);
      at.store(after, next + c * K);
    }
  });
}

// Scans tokens [begin, end) of the columns from the state at `before`, where the states before each follow.
template <bool kByChannel, ScanRule kRule>
HWY_INLINE void scan_chunk(const ScanGradHead& x, const ScanColumns& columns, int64_t begin, int64_t end) {
  const int64_t stride = kColumns * x.e.K;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * x.e.H + columns.head;
    float* const state = x.before + (t - begin) * stride;
    if (starts_segment(x.segments, t)) std::fill_n(state, stride, 0.0f);
    float value[kColumns] = {}, read[kColumns];
    std::copy_n(x.v + row * x.e.V + columns.first, columns.count, value);
    scan_token<kByChannel, kRule>(x, t, row, state, state + stride, value, read);
    std::copy_n(read, kColumns, x.read + (t - begin) * kColumns);
  }
}

// The gradient of the states [kColumns, K] after a token's q and dout, `out`; that of what its k is multiplied by, `change`;
// with rule general that of what b is multiplied by, `read`.
template <ScanRule kRule>
HWY_INLINE void slope_of_change(const ScanGradHead& x, int64_t t, const float (&out)[kColumns], float (&change)[kColumns],
                                float (&read)[kColumns]) {
  const DR d;
  constexpr bool kIsGeneral = kRule == ScanRule::kGeneral;
  const int64_t K = x.e.K, keys = t * x.e.G * K;
  const float *query = x.q + keys, *key = x.k + keys, *b = kIsGeneral ? x.b + keys : nullptr;
  VR dot[kColumns] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)}, out_all[kColumns];
  VR dot_b[kColumns] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  set_columns(out, out_all);
  for_vectors(0, K, [&](auto at) HWY_ATTR {
    const VR query_at = at.load(query), key_at = at.load(key), b_at = kIsGeneral ? at.load(b) : hn::Zero(d);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const VR g = hn::MulAdd(query_at, out_all[c], at.load(x.slope + c * K));
      at.store(g, x.slope + c * K);
      dot[c] = hn::MulAdd(g, key_at, dot[c]);
      if constexpr (kIsGeneral) dot_b[c] = hn::MulAdd(g, b_at, dot_b[c]);
    }
  });
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    change[c] = sum_of(dot[c]);
    if constexpr (kIsGeneral) read[c] = sum_of(dot_b[c]);
  }
}

// Numbers of each column for one token: dout, what k and b are multiplied by, and the gradient of what is read of the state.
struct TokenTerms {
  float out[kColumns], change[kColumns], read[kColumns], dread[kColumns];
};

// The token's terms of dq, dk, da, db, of the decay's gradient, and of the gradient of the state before it.
template <bool kByChannel, ScanRule kRule>
HWY_INLINE void add_terms(const ScanGradHead& x, int64_t t, int64_t row, const float* before, const TokenTerms& terms) {
  constexpr bool kIsGeneral = kRule == ScanRule::kGeneral, kIsDelta = kRule == ScanRule::kDelta;
  const DR d;
  const int64_t K = x.e.K, keys = t * x.e.G * K;
  const float *key = x.k + keys, *decay = x.decay + t * x.e.decays();
  const float *a = kIsGeneral ? x.a + keys : nullptr, *b = kIsGeneral ? x.b + keys : nullptr;
  float *da = kIsGeneral ? x.da + keys : nullptr, *db = kIsGeneral ? x.db + keys : nullptr;
  float *dq = x.dq + keys, *dk = x.dk + keys, *ddecay = x.dlog_decay + row * x.e.decays();
  VR out[kColumns], change[kColumns], read[kColumns], dread[kColumns], decay_sum = hn::Zero(d);
  set_columns(terms.out, out), set_columns(terms.change, change);
  set_columns(terms.read, read), set_columns(terms.dread, dread);
  for_vectors(0, K, [&](auto at) HWY_ATTR __attribute__((always_inline)) {
    const VR factor = decay_at<kByChannel>(decay, at), key_at = at.load(key), zero = hn::Zero(d);
    const VR a_at = kIsGeneral ? at.load(a) : zero, b_at = kIsGeneral ? at.load(b) : zero;
    VR dq_at = at.load(dq), dk_at = at.load(dk), ddecay_at = kByChannel ? at.load(ddecay) : decay_sum;
    VR da_at = kIsGeneral ? at.load(da) : zero, db_at = kIsGeneral ? at.load(db) : zero;
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const VR old = at.load(before + c * K), decayed = hn::Mul(factor, old), g = at.load(x.slope + c * K);
      VR after = hn::MulAdd(key_at, change[c], decayed), dbefore = g;
      dk_at = hn::MulAdd(g, change[c], dk_at);
      if constexpr (kIsDelta) {
        dk_at = hn::MulAdd(decayed, dread[c], dk_at);
        dbefore = hn::MulAdd(key_at, dread[c], g);
      }
      ddecay_at = hn::MulAdd(dbefore, decayed, ddecay_at);
      dbefore = hn::Mul(factor, dbefore);
      if constexpr (kIsGeneral) {
        after = hn::MulAdd(b_at, read[c], after);
        da_at = hn::MulAdd(old, dread[c], da_at);
        db_at = hn::MulAdd(g, read[c], db_at);
        dbefore = hn::MulAdd(a_at, dread[c], dbefore);
      }
      dq_at = hn::MulAdd(out[c], after, dq_at);
      at.store(dbefore, x.slope + c * K);
    }
    at.store(dq_at, dq), at.store(dk_at, dk);
    if constexpr (kIsGeneral) at.store(da_at, da), at.store(db_at, db);
    if (kByChannel)
      at.store(ddecay_at, ddecay);
    else
      decay_sum = ddecay_at;
  });
  if (!kByChannel) *ddecay += sum_of(decay_sum);
}

// Token t of the columns, backwards; `before` and `read` are the token's.
template <bool kByChannel, ScanRule kRule>
HWY_INLINE void token_back(const ScanGradHead& x, const ScanColumns& columns, int64_t t, const float* before,
                           const float* read) {
  const int64_t row = t * x.e.H + columns.head, first = row * x.e.V + columns.first;
  TokenTerms terms = {};
  for (int64_t c = 0; c < columns.count; ++c) terms.out[c] = static_cast<float>(x.e.scale) * x.dout[first + c];
  float dchange[kColumns];
  slope_of_change<kRule>(x, t, terms.out, dchange, terms.dread);
  if constexpr (kRule == ScanRule::kGeneral) {
    std::copy_n(x.v + first, columns.count, terms.change);
    std::copy_n(read, kColumns, terms.read);
    std::copy_n(dchange, columns.count, x.dv + first);
  } else {
    const float beta = x.beta[row];
    float dbeta = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      terms.change[c] = beta * read[c];
      if (kRule == ScanRule::kDelta) terms.dread[c] = -beta * dchange[c];
      if (c < columns.count) x.dv[first + c] = beta * dchange[c];
      dbeta += read[c] * dchange[c];
    }
    x.dbeta[row] += dbeta;
  }
  add_terms<kByChannel, kRule>(x, t, row, before, terms);
}

template <bool kByChannel, ScanRule kRule>
HWY_INLINE void columns_back(const ScanGradHead& x, const ScanColumns& columns) {
  const int64_t stride = kColumns * x.e.K;
  for (int64_t chunk = 0; chunk + 1 < x.chunks(); ++chunk) {
    if (chunk > 0) std::copy_n(x.kept + chunk * stride, stride, x.before);
    scan_chunk<kByChannel, kRule>(x, columns, chunk * kChunk, (chunk + 1) * kChunk);
    std::copy_n(x.before + kChunk * stride, stride, x.kept + (chunk + 1) * stride);
  }
  std::fill_n(x.slope, stride, 0.0f);
  for (int64_t chunk = x.chunks() - 1; chunk >= 0; --chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(x.e.T, begin + kChunk);
    if (chunk > 0) std::copy_n(x.kept + chunk * stride, stride, x.before);
    scan_chunk<kByChannel, kRule>(x, columns, begin, end);
    for (int64_t t = end - 1; t >= begin; --t) {
      token_back<kByChannel, kRule>(x, columns, t, x.before + (t - begin) * stride, x.read + (t - begin) * kColumns);
      if (starts_segment(x.segments, t)) std::fill_n(x.slope, stride, 0.0f);
    }
  }
}

template <bool kByChannel>
HWY_INLINE void back_by_rule(const ScanGradHead& x, const ScanColumns& columns) {
  switch (x.e.rule) {
    case ScanRule::kAdd: return columns_back<kByChannel, ScanRule::kAdd>(x, columns);
    case ScanRule::kDelta: return columns_back<kByChannel, ScanRule::kDelta>(x, columns);
    case ScanRule::kGeneral: return columns_back<kByChannel, ScanRule::kGeneral>(x, columns);
  }
}

void scan_columns_back(const ScanGradHead& x, const ScanColumns& columns) {
  x.e.decays_by_channel ? back_by_rule<true>(x, columns) : back_by_rule<false>(x, columns);
}

// The exponentials of the decays of a value head.
void exp_decays(const ScanGradHead& x, int64_t head) {
  const int64_t decays = x.e.decays();
  for (int64_t t = 0; t < x.e.T; ++t)
    for_vectors(0, decays, [&](auto at) HWY_ATTR {
      at.store(fast_exp(DR(), at.load(x.log_decay + (t * x.e.H + head) * decays)), x.decay + t * decays);
    });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(scan_columns_back);
HWY_EXPORT(exp_decays);

namespace {

// Floats of a task, in its order of fields.
int64_t scratch_floats(const ScanShape& e) {
  const int64_t chunks = (e.T + kChunk - 1) / kChunk;
  const int64_t floats = e.T * e.decays() + kColumns * (e.K * (chunks + kChunk + 2) + kChunk);
  return (floats + 15) / 16 * 16;
}

void head_back(ScanGradHead x, int64_t g, float* memory) {
  const ScanShape& e = x.e;
  const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
  x.decay = take(e.T * e.decays());
  x.kept = take(x.chunks() * kColumns * e.K);
  x.before = take((kChunk + 1) * kColumns * e.K);
  x.read = take(kChunk * kColumns);
  x.slope = take(kColumns * e.K);
  for (float* sums : {x.dq, x.dk, x.da, x.db})
    for (int64_t t = 0; t < e.T && sums != nullptr; ++t) std::fill_n(sums + t * e.G * e.K, e.K, 0.0f);
  for (int64_t h = g * e.group(); h < (g + 1) * e.group(); ++h) {
    for (int64_t t = 0; t < e.T; ++t) {
      std::fill_n(x.dlog_decay + (t * e.H + h) * e.decays(), e.decays(), 0.0f);
      if (x.dbeta != nullptr) x.dbeta[t * e.H + h] = 0;
    }
    HWY_DYNAMIC_DISPATCH(exp_decays)(x, h);
    for (int64_t v = 0; v < e.V; v += kColumns)
      HWY_DYNAMIC_DISPATCH(scan_columns_back)(x, {h, v, std::min(kColumns, e.V - v)});
  }
}

}  // namespace

Result<PreparedKernel> prepare_state_scan_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ScanShape e(spec, 1);
  if (e.K == 0) return Status(StatusCode::kUnsupported, "keys without channels: the reference kernel takes them");
  const int segments = 1 + e.operand_count();
  const bool has_segments = spec.input_count() > segments;
  const int64_t floats = scratch_floats(e);
  return simd_prepared(
      spec, e.grad_flops(), make_kernel([=](const LaunchArgs& args) {
        args.pool.parallel_for(e.B * e.G, [&](int64_t task) {
          const int64_t b = task / e.G, g = task % e.G;
          const int64_t keys = (b * e.T * e.G + g) * e.K, rows = b * e.T * e.H;
          ScanGradHead x = {.e = e};
          x.q = args.in<float>(1) + keys, x.k = args.in<float>(2) + keys;
          x.v = args.in<float>(3) + rows * e.V, x.dout = args.in<float>(0) + rows * e.V;
          x.log_decay = args.in<float>(4) + rows * e.decays();
          x.segments = has_segments ? args.in<int32_t>(segments) + b * e.T : nullptr;
          x.dq = args.out<float>(0) + keys, x.dk = args.out<float>(1) + keys;
          x.dv = args.out<float>(2) + rows * e.V;
          x.dlog_decay = args.out<float>(3) + rows * e.decays();
          if (e.is_general()) {
            x.a = args.in<float>(5) + keys, x.b = args.in<float>(6) + keys;
            x.da = args.out<float>(4) + keys, x.db = args.out<float>(5) + keys;
          } else {
            x.beta = args.in<float>(5) + rows, x.dbeta = args.out<float>(4) + rows;
          }
          head_back(x, g, static_cast<float*>(args.workspace) + task * floats);
        });
      }),
      e.B * e.G * floats * static_cast<int64_t>(sizeof(float)));
}

}  // namespace tessera::cpu
#endif
