// Reference kernels of serving: attention over pages, rows written to pages, rows selected.
#include <cmath>
#include <cstddef>
#include <cstring>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"
#include "graph/base/text.h"
#include "runtime/backends/cpu/kernels/attention_scores.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/paged_keys.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Element i of pages of any type.
double element(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF64: return static_cast<const double*>(data)[i];
    case DType::kBF16: return f32_from_bf16(static_cast<const uint16_t*>(data)[i]);
    case DType::kF16: return f32_from_f16(static_cast<const uint16_t*>(data)[i]);
    case DType::kQ8_0: {
      const BlockQ8_0& block = static_cast<const BlockQ8_0*>(data)[i / BlockQ8_0::kElements];
      return double(block.codes[i % BlockQ8_0::kElements]) * f32_from_f16(block.d);
    }
    default: return static_cast<const float*>(data)[i];
  }
}

// Attends the queries of one token and head: a pass for the maximum and the sum, and one for the values.
template <class F>
struct PagedAttention {
  int64_t H, KV, D, V;
  int64_t value_row;  // numbers from a value to the next
  AttentionScore score;
  DType pages;

  double compute(const PagedTokens& tokens, int64_t token, int64_t h, const F* q, const void* k,
                 const void* v, F* out) const {
    const AttentionMask::Keys seen = tokens.keys(token);
    const int64_t kv = h / (H / KV);
    const auto score_of = [&](int64_t s) {
      const int64_t slot = tokens.slot(tokens.row[token], s);
      if (slot < 0) return kUnseen;
      double sum = 0;
      for (int64_t d = 0; d < D; ++d) sum += double(q[d]) * element(k, pages, (slot * KV + kv) * D + d);
      return score.finish(sum);
    };
    double top = kUnseen, sum = 0;
    for (int64_t s = seen.begin; s < seen.end; ++s) top = std::max(top, score_of(s));
    for (int64_t d = 0; d < V; ++d) out[d] = F(0);
    if (top == kUnseen) return kUnseen;
    for (int64_t d0 = 0; d0 < V; d0 += kHeadBlock) {
      const int64_t width = std::min(kHeadBlock, V - d0);
      double value[kHeadBlock] = {};
      sum = 0;
      for (int64_t s = seen.begin; s < seen.end; ++s) {
        const double p = std::exp(score_of(s) - top);
        if (p == 0) continue;
        sum += p;
        const int64_t at = (tokens.slot(tokens.row[token], s) * KV + kv) * value_row + d0;
        for (int64_t d = 0; d < width; ++d) value[d] += p * element(v, pages, at + d);
      }
      for (int64_t d = 0; d < width; ++d) out[d0 + d] = F(value[d] / sum);
    }
    if (V == 0)
      for (int64_t s = seen.begin; s < seen.end; ++s) sum += std::exp(score_of(s) - top);
    return top + std::log(sum);
  }
};

// Stores `count` numbers as blocks of q8_0. A block with a number that q8_0 cannot hold becomes NaN.
void store_q8_0(const float* values, int64_t count, std::byte* out) {
  if (encode_blocks(DType::kQ8_0, values, count, out).ok()) return;
  constexpr uint16_t kNaN = 0x7e00;
  for (int64_t i = 0; i < count; i += BlockQ8_0::kElements, out += sizeof(BlockQ8_0)) {
    if (encode_blocks(DType::kQ8_0, values + i, BlockQ8_0::kElements, out).ok()) continue;
    const BlockQ8_0 block{.d = kNaN, .codes = {}};
    std::memcpy(out, &block, sizeof block);
  }
}

void store_q8_0(const double* values, int64_t count, std::byte* out) {
  constexpr int64_t kBlock = BlockQ8_0::kElements;
  for (int64_t i = 0; i < count; i += kBlock, out += sizeof(BlockQ8_0)) {
    float as_f32[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) as_f32[j] = float(values[i + j]);
    store_q8_0(as_f32, kBlock, out);
  }
}

// Stores a row of `count` floats in pages of another type.
void store_row(const std::byte* row, DType from, int64_t count, DType to, std::byte* out) {
  if (from == DType::kF64) return store_q8_0(reinterpret_cast<const double*>(row), count, out);
  const auto* const values = reinterpret_cast<const float*>(row);
  if (to == DType::kQ8_0) return store_q8_0(values, count, out);
  auto* const half = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i)
    half[i] = to == DType::kBF16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]);
}

}  // namespace

// q [B, T, H, D], k_pages [P, S, KV, D], v_pages [P, S, KV, V] where the keys' do not hold the values, table [R, M], row,
// position [B, T] -> out [B, T, H, V] (, lse [B, T, H]).
Result<PreparedKernel> prepare_attention_paged(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto q = spec.input_dims(0), k = spec.input_dims(1);
    const PagedValues values(spec);
    const PagedAttention<F> attention{
        q[2], k[2], q[3], values.width, values.row, AttentionScore(spec, q[3]), spec.input_dtype(1)};
    const PagedTokens paged = PagedTokens::from_spec(spec, 1, values.operand + 1);
    const int64_t queries = q[0] * q[1] * q[2];
    const bool has_lse = spec.output_count() == 2;
    auto launch = [=](const LaunchArgs& args) {
      const PagedTokens tokens = paged.with(args, values.operand + 1);
      args.pool.parallel_ranges(queries, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const double lse = attention.compute(tokens, i / attention.H, i % attention.H,
                                               args.in<F>(0) + i * attention.D, args.inputs[1],
                                               args.inputs[values.operand], args.out<F>(0) + i * attention.V);
          if (has_lse) args.out<F>(1)[i] = F(lse);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch),
                            2.0 * double(queries) * double(paged.most_keys()) * double(q[3] + attention.V));
  });
}

// pages [P, S, KV, D], new [B, T, KV, D], slot [B, T] -> pages. `slot` is untrusted: rows outside the pages are dropped.
Result<PreparedKernel> prepare_kv_write(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0), rows = spec.input_dims(1);
  const int64_t slots = dims[0] * dims[1], tokens = rows[0] * rows[1], width = dims[2] * dims[3];
  const DType to = spec.input_dtype(0), from = spec.input_dtype(1);
  const int64_t row_bytes = dtype_bytes(to, width), all_bytes = dtype_bytes(to, slots * width);
  const int64_t new_bytes = dtype_bytes(from, width);
  const bool is_f32 = from == DType::kF32, is_f64 = from == DType::kF64 && to == DType::kQ8_0;
  if (to != from && !is_f32 && !is_f64)
    return Status(StatusCode::kUnsupported, format("rows of {} in pages of {}", from, to));
  constexpr int64_t kGrain = 4096;  // elements of a task, where they are converted
  auto launch = [=](const LaunchArgs& args) {
    const std::byte *pages = args.in<std::byte>(0), *given = args.in<std::byte>(1);
    const int32_t* slot = args.in<int32_t>(2);
    std::byte* out = args.out<std::byte>(0);
    if (out != pages && all_bytes > 0) std::memcpy(out, pages, static_cast<size_t>(all_bytes));
    if (row_bytes == 0) return;
    args.pool.parallel_ranges(tokens, to == from ? tokens : kGrain / width + 1,
                              [&](int64_t begin, int64_t end) {
                                for (int64_t i = begin; i < end; ++i) {
                                  if (slot[i] < 0 || slot[i] >= slots) continue;
                                  std::byte* const at = out + slot[i] * row_bytes;
                                  if (to == from)
                                    std::memcpy(at, given + i * row_bytes, static_cast<size_t>(row_bytes));
                                  else
                                    store_row(given + i * new_bytes, from, width, to, at);
                                }
                              });
  };
  PreparedKernel prepared = reference_kernel(spec, make_kernel(launch), 0);
  prepared.bytes = 2 * static_cast<double>(tokens * row_bytes);  // in place, as programs run it
  return prepared;
}

// x [B, T, C], or [B, T] of integers, rows [W] -> y [W, C], or [W]. Any dtype: rows are copied as bytes. `rows` is untrusted: what
// is not there gives 0, of integers -1.
Result<PreparedKernel> prepare_select_rows(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t tokens = dims[0] * dims[1], count = spec.input_dims(1)[0];
  const bool is_number = dims.size() == 2;
  const int64_t row_bytes = dtype_bytes(spec.input_dtype(0), is_number ? 1 : dims[2]);
  auto launch = [=](const LaunchArgs& args) {
    const std::byte* x = args.in<std::byte>(0);
    const int32_t* rows = args.in<int32_t>(1);
    std::byte* y = args.out<std::byte>(0);
    if (row_bytes == 0) return;
    for (int64_t w = 0; w < count; ++w) {
      const bool there = rows[w] >= 0 && rows[w] < tokens;
      if (there) {
        std::memcpy(y + w * row_bytes, x + rows[w] * row_bytes, static_cast<size_t>(row_bytes));
      } else {
        std::memset(y + w * row_bytes, is_number ? 0xff : 0, static_cast<size_t>(row_bytes));
      }
    }
  };
  PreparedKernel prepared = reference_kernel(spec, make_kernel(launch), 0);
  prepared.bytes = 2 * static_cast<double>(count * row_bytes);
  return prepared;
}

}  // namespace tessera::cpu
