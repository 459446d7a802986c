// Causal convolution in f32, a block of channels at a time. A channel's products are added in the order of the taps, whatever
// the step that a token comes in.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/backends/cpu/kernels/causal_conv_shape.h"
#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/causal_conv_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_CAUSAL_CONV_SIMD_CC_ONCE_
#define TSR_CAUSAL_CONV_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kBlock = 128;  // channels of a task

// ConvBlock: the weights of channels [begin, begin + width), by tap.
struct ConvBlock {
  int64_t K, begin, width;
  bool has_silu;
  alignas(64) float taps[kMostConvTaps][kBlock] = {}, bias[kBlock] = {};

  ConvBlock(const ConvShape& e, int64_t block, const float* w, const float* b)
      : K(e.K), begin(block * kBlock), width(std::min(kBlock, e.C - begin)), has_silu(e.has_silu) {
    for (int64_t c = 0; c < width; ++c)
      for (int64_t j = 0; j < K; ++j) taps[j][c] = w[(begin + c) * K + j];
    if (b != nullptr) std::copy_n(b + begin, width, bias);
  }
};

// Rows of a block's channels, one a tap; null where there is none.
template <class F>
struct TapRows {
  F* row[kMostConvTaps] = {};
};

// ConvSums: a block's gradients of weights and bias. Tokens are summed in parts of kPart, which then join the total: two
// levels of rounding.
struct ConvSums {
  static constexpr int64_t kPart = 64;
  alignas(64) float part[kMostConvTaps + 1][kBlock] = {}, total[kMostConvTaps + 1][kBlock] = {};  // the bias is last
  int64_t count = 0;

  void end_token() {
    if (++count % kPart == 0) join();
  }
  void join() {
    for (int64_t j = 0; j <= kMostConvTaps; ++j)
      for (int64_t c = 0; c < kBlock; ++c) total[j][c] += std::exchange(part[j][c], 0.0f);
  }
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The sum before the activation.
template <class At>
HWY_INLINE VR conv_sum(const ConvBlock& block, const TapRows<const float>& inputs, const At& at) {
  const DR d;
  VR sum = hn::Load(d, block.bias + at.at);
  for (int64_t j = 0; j < block.K; ++j)
    if (inputs.row[j] != nullptr)
      sum = hn::MulAdd(hn::Load(d, block.taps[j] + at.at), at.load(inputs.row[j]), sum);
  return sum;
}

void conv_token(const ConvBlock& block, const TapRows<const float>& inputs, float* y) {
  for_vectors(0, block.width, [&](auto at) HWY_ATTR {
    const VR sum = conv_sum(block, inputs, at);
    at.store(block.has_silu ? silu(DR(), sum) : sum, y);
  });
}

// Adds a token's terms to the sums and to dx of its inputs; of the last tap, the token's own, dx is set.
void conv_grad_token(const ConvBlock& block, const TapRows<const float>& inputs, const float* dy,
                     const TapRows<float>& dx, ConvSums& sums) {
  const DR d;
  for_vectors(0, block.width, [&](auto at) HWY_ATTR {
    VR g = at.load(dy);
    if (block.has_silu) {
      const VR z = conv_sum(block, inputs, at), s = fast_sigmoid(d, z), one = hn::Set(d, 1.0f);
      g = hn::Mul(g, hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one)));
    }
    for (int64_t j = 0; j < block.K; ++j) {
      if (inputs.row[j] == nullptr) continue;
      float* const sum = sums.part[j] + at.at;
      hn::Store(hn::MulAdd(g, at.load(inputs.row[j]), hn::Load(d, sum)), d, sum);
      const VR term = hn::Mul(g, hn::Load(d, block.taps[j] + at.at));
      at.store(j + 1 == block.K ? term : hn::Add(at.load(dx.row[j]), term), dx.row[j]);
    }
    float* const sum = sums.part[kMostConvTaps] + at.at;
    hn::Store(hn::Add(g, hn::Load(d, sum)), d, sum);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(conv_token);
HWY_EXPORT(conv_grad_token);

namespace {

int64_t blocks_of(int64_t C) { return (C + kBlock - 1) / kBlock; }

// The rows of `values` [T, C] that token t of a sequence sees: none before the sequence, or of another segment.
template <class F>
TapRows<F> seen_rows(const ConvShape& e, const ConvBlock& block, const int32_t* segments, int64_t t, F* values) {
  TapRows<F> rows;
  for (int64_t j = std::max<int64_t>(e.K - 1 - t, 0); j < e.K; ++j) {
    const int64_t from = t - e.K + 1 + j;
    if (segments == nullptr || segments[from] == segments[t]) rows.row[j] = values + from * e.C + block.begin;
  }
  return rows;
}

// ConvRow: the inputs that tokens of one row of state see.
struct ConvRow {
  const ConvShape& e;
  const float* x;
  const int32_t* position;
  std::span<const int64_t> tokens;
  float* state;  // [K - 1, C]

  TapRows<const float> seen(const ConvBlock& block, int64_t n) const {
    TapRows<const float> rows;
    bool has_older = true;
    for (int64_t age = 0; age < e.K && has_older; ++age) {
      const int64_t at = n - age, j = e.K - 1 - age;
      const auto token = static_cast<size_t>(std::max<int64_t>(at, 0));
      rows.row[j] = (at >= 0 ? x + tokens[token] * e.C : state + (e.K - 1 + at) * e.C) + block.begin;
      has_older = at < 0 || position[tokens[token]] != 0;
    }
    return rows;
  }

  void run(const ConvBlock& block, float* y) const {
    const auto count = static_cast<int64_t>(tokens.size());
    for (int64_t n = 0; n < count; ++n)
      HWY_DYNAMIC_DISPATCH(conv_token)
      (block, seen(block, n), y + tokens[static_cast<size_t>(n)] * e.C + block.begin);
    // The last K - 1 inputs become the state. Rows move towards its front in order, so no row is overwritten before it is read.
    const TapRows<const float> last = seen(block, count - 1);
    for (int64_t j = 0; j + 1 < e.K; ++j) {
      float* const kept = state + j * e.C + block.begin;
      if (last.row[j + 1] != nullptr)
        std::memmove(kept, last.row[j + 1], sizeof(float) * static_cast<size_t>(block.width));
      else
        std::fill_n(kept, block.width, 0.0f);
    }
  }
};

}  // namespace

Result<PreparedKernel> prepare_causal_conv_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ConvShape e(spec, 0);
  constexpr int64_t kTokens = 256;  // of a task
  const int64_t blocks = blocks_of(e.C), parts = (e.T + kTokens - 1) / kTokens;
  return simd_prepared(spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
                         const int32_t* all = e.has_segments ? args.in<int32_t>(e.has_bias ? 3 : 2) : nullptr;
                         args.pool.parallel_for(e.B * parts * blocks, [&](int64_t task) {
                           const int64_t b = task / blocks / parts, first = task / blocks % parts * kTokens;
                           const ConvBlock block(e, task % blocks, args.in<float>(1),
                                                 e.has_bias ? args.in<float>(2) : nullptr);
                           const float* x = args.in<float>(0) + b * e.T * e.C;
                           float* y = args.out<float>(0) + b * e.T * e.C + block.begin;
                           const int32_t* segments = all == nullptr ? nullptr : all + b * e.T;
                           for (int64_t t = first; t < std::min(e.T, first + kTokens); ++t)
                             HWY_DYNAMIC_DISPATCH(conv_token)(block, seen_rows(e, block, segments, t, x), y + t * e.C);
                         });
                       }));
}

Result<PreparedKernel> prepare_causal_conv_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ConvShape e(spec, 1);
  return simd_prepared(
      spec, 3 * e.flops(), make_kernel([=](const LaunchArgs& args) {
        const float *dy = args.in<float>(0), *x = args.in<float>(1), *w = args.in<float>(2);
        const int32_t* all = e.has_segments ? args.in<int32_t>(e.has_bias ? 4 : 3) : nullptr;
        float *dx = args.out<float>(0), *dw = args.out<float>(1);
        args.pool.parallel_for(blocks_of(e.C), [&](int64_t task) {
          const ConvBlock block(e, task, w, e.has_bias ? args.in<float>(3) : nullptr);
          ConvSums sums;
          for (int64_t b = 0; b < e.B; ++b)
            for (int64_t t = 0; t < e.T; ++t) {
              const int64_t sequence = b * e.T * e.C;
              const int32_t* segments = all == nullptr ? nullptr : all + b * e.T;
              HWY_DYNAMIC_DISPATCH(conv_grad_token)
              (block, seen_rows(e, block, segments, t, x + sequence), dy + sequence + t * e.C + block.begin,
               seen_rows(e, block, segments, t, dx + sequence), sums);
              sums.end_token();
            }
          sums.join();
          for (int64_t c = 0; c < block.width; ++c) {
            for (int64_t j = 0; j < e.K; ++j) dw[(block.begin + c) * e.K + j] = sums.total[j][c];
            if (e.has_bias) args.out<float>(2)[block.begin + c] = sums.total[kMostConvTaps][c];
          }
        });
      }));
}

Result<PreparedKernel> prepare_causal_conv_rows_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ConvShape e(spec, 1);
  const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
  const int64_t blocks = blocks_of(e.C);
  const int row = spec.input_count() - 2;
  return simd_prepared(
      spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
        const RowTokens by_row(R, args.in<int32_t>(row), tokens, args.workspace);
        float *y = args.out<float>(0), *state = args.out<float>(1);
        begin_rows<float>(args, by_row, e.C, state_count);
        args.pool.parallel_for(by_row.active_count() * blocks, [&](int64_t task) {
          const int64_t at = by_row.active(task / blocks);
          const ConvBlock block(e, task % blocks, args.in<float>(2), e.has_bias ? args.in<float>(3) : nullptr);
          ConvRow{e, args.in<float>(1), args.in<int32_t>(row + 1), by_row.of(at), state + at * (e.K - 1) * e.C}.run(
              block, y);
        });
      }),
      RowTokens::bytes(R, tokens));
}

}  // namespace tessera::cpu
#endif
