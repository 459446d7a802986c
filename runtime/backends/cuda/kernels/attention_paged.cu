// Ops of serving: attention over pages, rows written to pages, rows selected. Plain kernels: a warp computes a query, key
// after key, with a running maximum and sum.
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/block_scale.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/attention.cuh"
#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/paged_tokens.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int kWarps = 4;                                                 // per block
constexpr int kMostPagedHead = 1024;                                      // D and V, latent vectors
constexpr int64_t kBlockWords = sizeof(BlockQ8_0) / sizeof(uint16_t);  // of q8_0

// Column c of row number `row` of pages whose rows have `cols`.
template <class W, class P>
__device__ inline W page_value(const P* pages, int64_t row, int64_t cols, int64_t c) {
  if constexpr (std::is_same_v<P, BlockQ8_0>) {
    constexpr int64_t kBlock = BlockQ8_0::kElements;
    const BlockQ8_0& block = pages[row * (cols / kBlock) + c / kBlock];
    return static_cast<W>(static_cast<float>(block.codes[c % kBlock]) * f32_from_f16(block.d));
  } else {
    return static_cast<W>(widen(pages[row * cols + c]));
  }
}

template <class T, class P>
struct PagedOperands {
  const T* q;
  const P *k, *v;     // the same where values are the first numbers of keys
  int64_t value_row;  // numbers of a row of v
  T* out;
  Wide<T>* lse;  // null where nobody wants it
  PagedTokens tokens;
};

// A lane has Columns columns of a key and of a value.
template <class T, class P, int Columns>
__global__ void __launch_bounds__(kWarps * 32) attention_paged_kernel(AttentionShape e, PagedOperands<T, P> x) {
  using W = Wide<T>;
  const int lane = threadIdx.x % 32;
  const int64_t query = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;  // token and head
  if (query >= e.T * e.H) return;
  const int64_t token = query / e.H, kv = query % e.H / e.group();
  const Team<32> team{lane};
  W wide[Columns] = {}, acc[Columns] = {};
#pragma unroll
  for (int c = 0; c < Columns; ++c)
    if (c * 32 + lane < e.D) wide[c] = widen(x.q[query * e.D + c * 32 + lane]);
  W top = minus_infinity<W>(), sum = 0;
  int64_t first = 0;
  const int64_t end = x.tokens.keys(token, e.window, first);
  for (int64_t s = first; s < end; ++s) {
    const int64_t slot = x.tokens.slot(token, s);
    if (slot < 0) continue;  // the same for all lanes
    const int64_t at = slot * e.KV + kv;
    W part = 0;
#pragma unroll
    for (int c = 0; c < Columns; ++c)
      if (c * 32 + lane < e.D) part += wide[c] * page_value<W>(x.k, at, e.D, c * 32 + lane);
    const W score = e.capped(team.sum(part) * static_cast<W>(e.scale));
    const W new_top = Larger{}(top, score);
    const W shrink = top == minus_infinity<W>() ? W(0) : exp(top - new_top), p = exp(score - new_top);
    sum = sum * shrink + p;
    top = new_top;
#pragma unroll
    for (int c = 0; c < Columns; ++c)
      if (c * 32 + lane < e.V) acc[c] = acc[c] * shrink + p * page_value<W>(x.v, at, x.value_row, c * 32 + lane);
  }
  const bool sees = top != minus_infinity<W>();
#pragma unroll
  for (int c = 0; c < Columns; ++c)
    if (c * 32 + lane < e.V) x.out[query * e.V + c * 32 + lane] = narrow<T>(sees ? acc[c] / sum : W(0));
  if (x.lse != nullptr && lane == 0) x.lse[query] = sees ? top + log(sum) : minus_infinity<W>();
}

template <class T, class P>
struct KvWrite {
  const T* rows;
  const int32_t* slot;
  P* pages;
  int64_t slots, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = slot[row];
    if (at < 0 || at >= slots) return;
    team.each(cols, [&](int64_t c) {
      if constexpr (std::is_same_v<T, P>)
        pages[at * cols + c] = rows[row * cols + c];
      else
        pages[at * cols + c] = narrow<P>(widen(rows[row * cols + c]));
    });
  }
};

// A block as encode_q8_0 makes it; NaN where q8_0 cannot hold one of its numbers.
__device__ inline BlockQ8_0 encode_q8_0(const float (&x)[BlockQ8_0::kElements]) {
  constexpr float kMost = 65504.0f * 127.0f, kRound = 12582912.0f;  // 1.5 * 2^23: sums have no digits after the point
  BlockQ8_0 block{.d = 0x7e00, .codes = {}};
  float most = 0;
  for (int i = 0; i < BlockQ8_0::kElements; ++i) most = Larger{}(most, x[i] < 0 ? -x[i] : x[i]);
  if (!(most <= kMost)) return block;
  block.d = f16_scale(most / 127.0f);
  const float inverse = inverse_or_zero(f32_from_f16(block.d));
  for (int i = 0; i < BlockQ8_0::kElements; ++i) {
    float level = x[i] * inverse;
    level = level < -127.0f ? -127.0f : level > 127.0f ? 127.0f : level;
    block.codes[i] = static_cast<int8_t>(level + kRound - kRound);
  }
  return block;
}

// Writes rows of floats to pages of blocks; `cols` counts blocks.
template <class T>
struct KvWriteBlocks {
  const T* rows;
  const int32_t* slot;
  BlockQ8_0* pages;
  int64_t slots, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = slot[row];
    if (at < 0 || at >= slots) return;
    team.each(cols, [&](int64_t c) {
      float x[BlockQ8_0::kElements];
      for (int i = 0; i < BlockQ8_0::kElements; ++i)
        x[i] = static_cast<float>(widen(rows[(row * cols + c) * BlockQ8_0::kElements + i]));
      pages[at * cols + c] = encode_q8_0(x);
    });
  }
};

template <class T>
struct SelectRows {
  const T* x;
  const int32_t* rows;
  T* y;
  int64_t tokens, cols;
  T none;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t w) const {
    const int64_t at = rows[w];
    const bool there = at >= 0 && at < tokens;
    team.each(cols, [&](int64_t c) { y[w * cols + c] = there ? x[at * cols + c] : none; });
  }
};

// Calls f(T{}, P{}) for tokens of type T over pages of type P: P is T, 16 bits where T is f32, or blocks of q8_0.
template <class F>
Result<PreparedKernel> dispatch_pages(DType tokens, DType pages, F&& f) {
  return dispatch_float(tokens, [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float>) {
      if (pages == DType::kBF16) return f(zero, __nv_bfloat16{});
#ifndef TSR_FEW_TYPES
      if (pages == DType::kF16) return f(zero, __half{});
#endif
    }
    if (pages == DType::kQ8_0) return f(zero, BlockQ8_0{});
    if (pages != tokens)
      return Status(StatusCode::kUnsupported, format("pages of {} with {}", to_text(pages), to_text(tokens)));
    return f(zero, T{});
  });
}

}  // namespace

// q [B, T, H, D], k_pages [P, S, KV, D], v_pages [P, S, KV, V] where the keys' do not hold the values, table [R, M], row,
// position [B, T] -> out [B, T, H, V] (, lse [B, T, H]).
Result<PreparedKernel> prepare_attention_paged(const KernelSpec& spec) {
  const bool has_values = spec.i64("value_width") == 0;
  const int v = has_values ? 2 : 1;  // the tokens' operands follow it
  AttentionShape shape = attention_shape(spec, 0, 1, v);
  if (!has_values) shape.V = spec.i64("value_width");
  shape.T *= shape.B;
  shape.B = 1;
  const int64_t widest = shape.D > shape.V ? shape.D : shape.V, value_row = spec.input_dims(v)[3];
  if (widest > kMostPagedHead)
    return Status(StatusCode::kUnsupported, format("heads of {} elements, at most {}", widest, kMostPagedHead));
  const auto pages = spec.input_dims(1), table = spec.input_dims(v + 1);
  const int64_t blocks = (shape.T * shape.H + kWarps - 1) / kWarps;
  if (blocks >= kMostGrid) return Status(StatusCode::kUnsupported, format("{} blocks", blocks));
  const PagedTokens tokens{nullptr, nullptr, nullptr, table[0], table[1], pages[0], pages[1]};
  return dispatch_pages(spec.input_dtype(0), spec.input_dtype(1),
                        [&](auto zero, auto stored) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using P = decltype(stored);
    const bool has_lse = spec.output_count() == 2;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          if (blocks <= 0) return;
                          PagedOperands<T, P> x{args.in<T>(0),  args.in<P>(1),
                                                args.in<P>(v),  value_row, args.out<T>(0),
                                                has_lse ? args.out<Wide<T>>(1) : nullptr, tokens};
                          x.tokens.table = args.in<int32_t>(v + 1);
                          x.tokens.row = args.in<int32_t>(v + 2);
                          x.tokens.position = args.in<int32_t>(v + 3);
                          const auto grid = static_cast<unsigned>(blocks);
                          if (widest <= kMostHead)
                            attention_paged_kernel<T, P, kColumnsPerLane>
                                <<<grid, kWarps * 32, 0, args.stream>>>(shape, x);
                          else
                            attention_paged_kernel<T, P, kMostPagedHead / 32>
                                <<<grid, kWarps * 32, 0, args.stream>>>(shape, x);
                        }));
  });
}

// pages [P, S, KV, D], new [B, T, KV, D], slot [B, T] -> pages. `slot` is untrusted: rows outside the pages are dropped.
Result<PreparedKernel> prepare_kv_write(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0), rows = spec.input_dims(1);
  const int64_t slots = dims[0] * dims[1], tokens = rows[0] * rows[1], width = dims[2] * dims[3];
  const double moved = 2 * operand_bytes(spec, 1);
  const auto page_bytes = static_cast<size_t>(dtype_bytes(spec.input_dtype(0), slots * width));
  // make(args, cols) gives the functor that writes a row of `cols` elements or blocks.
  const auto writing = [&](int64_t cols, auto make) {
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) -> Status {
                          if (args.inputs[0] != args.outputs[0] && page_bytes > 0)
                            TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(args.outputs[0], args.inputs[0], page_bytes,
                                                                          cudaMemcpyDeviceToDevice, args.stream),
                                                          "kv_write"));
                          launch_rows(args.stream, tokens, cols, make(args, cols));
                          return {};
                        }));
  };
  const auto prepare = [&](auto zero, auto stored) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using P = decltype(stored);
    if constexpr (std::is_same_v<P, BlockQ8_0>)
      return writing(width / BlockQ8_0::kElements, [=](const LaunchArgs& args, int64_t cols) {
        return KvWriteBlocks<T>{args.in<T>(1), args.in<int32_t>(2), args.out<P>(0), slots, cols};
      });
    else
      return writing(width, [=](const LaunchArgs& args, int64_t cols) {
        return KvWrite<T, P>{args.in<T>(1), args.in<int32_t>(2), args.out<P>(0), slots, cols};
      });
  };
  const auto prepare_any = [&]() -> Result<PreparedKernel> {
    if (spec.input_dtype(1) != DType::kQ8_0)
      return dispatch_pages(spec.input_dtype(1), spec.input_dtype(0), prepare);
    return writing(width / BlockQ8_0::kElements * kBlockWords, [=](const LaunchArgs& args, int64_t cols) {
      return KvWrite<uint16_t, uint16_t>{args.in<uint16_t>(1), args.in<int32_t>(2), args.out<uint16_t>(0), slots, cols};
    });
  };
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, prepare_any());
  prepared.bytes = moved;
  const DType dtype = spec.input_dtype(0);
  if (dtype != spec.input_dtype(1) || is_block_type(dtype)) return std::move(prepared);
  return as_decode_step(std::move(prepared), {dtype, PageStep{slots, tokens, width}});
}

// x [B, T, C], or [B, T] of integers, rows [W] -> y [W, C], or [W]. `rows` is untrusted: what is not there gives 0, of integers -1.
Result<PreparedKernel> prepare_select_rows(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const bool is_number = dims.size() == 2;
  const int64_t tokens = dims[0] * dims[1], cols = is_number ? 1 : dims[2], count = spec.input_dims(1)[0];
  const auto selecting = [&](auto zero, int64_t each) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const T none = is_number ? static_cast<T>(-1) : T(0);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_rows(args.stream, count, each,
                                      SelectRows<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), tokens, each, none});
                        }));
  };
  if (spec.input_dtype(0) == DType::kQ8_0)
    return selecting(uint16_t{}, cols / BlockQ8_0::kElements * kBlockWords);
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) { return selecting(zero, cols); });
}

}  // namespace tessera::cuda
