// adapter_shrink and adapter_expand in f32, over factors of f32, bf16 or f16. Tokens of one slot are computed side by side,
// which reads its factors once for several of them; the sums of a token are the same whatever else the launch has.
#include <algorithm>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/token_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/adapter_products_grouped.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"

#ifndef TSR_ADAPTER_PRODUCTS_GROUPED_CC_ONCE_
#define TSR_ADAPTER_PRODUCTS_GROUPED_CC_ONCE_
namespace tessera::cpu {
namespace {

// Shrinking: in [T, K] x, out [T, R] low, rows of factors [K]. Expanding: in [T, R] low, out [T, N] y, rows [N].
struct AdapterOperands {
  const float* in;
  const void* factors;  // [S, R, columns]
  const float* base;    // of expanding
  float* out;
  int64_t R, columns;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

using DA = hn::CappedTag<float, 16>;
using VA = hn::Vec<DA>;
constexpr int64_t kAdapterLanes = static_cast<int64_t>(hn::MaxLanes(DA()));

struct F32Factors {
  using Number = float;
  static HWY_INLINE VA load(const float* p) { return hn::LoadU(DA(), p); }
  static float widen(float number) { return number; }
};
struct BF16Factors {
  using Number = uint16_t;
  static HWY_INLINE VA load(const uint16_t* p) { return load_bf16(DA(), p); }
  static float widen(uint16_t number) { return f32_from_bf16(number); }
};
struct F16Factors {
  using Number = uint16_t;
  static HWY_INLINE VA load(const uint16_t* p) {
    const hn::Rebind<hwy::float16_t, DA> d16;
    return hn::PromoteTo(DA(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static float widen(uint16_t number) { return f32_from_f16(number); }
};

// The first `count` numbers, then zeros.
template <class Factors>
HWY_INLINE VA load_first(const typename Factors::Number* p, int64_t count) {
  alignas(64) float part[kAdapterLanes] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = Factors::widen(p[i]);
  return hn::Load(DA(), part);
}

// Products of T tokens with M rows of factors. A sum has one vector, whatever T and M are.
template <class Factors, int T, int M>
void shrink_rows(const float* const* x, const typename Factors::Number* a, int64_t K, float* const* low) {
  VA sums[T][M];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sums[t][m] = hn::Zero(DA());
  }
  const auto add = [&](const auto& value_of, const auto& factor_of) HWY_ATTR {
    VA values[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) values[t] = value_of(t);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const VA factor = factor_of(m);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) sums[t][m] = hn::MulAdd(values[t], factor, sums[t][m]);
    }
  };
  int64_t k = 0;
  for (; k + kAdapterLanes <= K; k += kAdapterLanes)
    add([&](int t) HWY_ATTR { return hn::LoadU(DA(), x[t] + k); },
        [&](int m) HWY_ATTR { return Factors::load(a + m * K + k); });
  if (k < K)
    add([&](int t) HWY_ATTR { return load_first<F32Factors>(x[t] + k, K - k); },
        [&](int m) HWY_ATTR { return load_first<Factors>(a + m * K + k, K - k); });
  for (int t = 0; t < T; ++t)
    for (int m = 0; m < M; ++m) low[t][m] = hn::GetLane(hn::SumOfLanes(DA(), sums[t][m]));
}

// Rows [begin, end) of the rank for a tile's tokens.
template <class Factors>
void shrink_tile(const AdapterOperands& o, const int32_t* order, const SlotTile& tile, int64_t begin,
                 int64_t end) {
  const auto* a = static_cast<const typename Factors::Number*>(o.factors) + tile.slot * o.R * o.columns;
  const float* x[4];
  float* low[4];
  for (int32_t i = 0; i < tile.count;) {
    const int tokens = tile.count - i >= 4 ? 4 : 1;
    for (int t = 0; t < tokens; ++t) {
      x[t] = o.in + order[tile.first + i + t] * o.columns;
      low[t] = o.out + order[tile.first + i + t] * o.R;
    }
    int64_t r = begin;
    const auto next = [&](int64_t rows) {
      r += rows;
      for (int t = 0; t < tokens; ++t) low[t] += rows;
    };
    for (int t = 0; t < tokens; ++t) low[t] += begin;
    for (; r + 4 <= end; next(4))
      tokens == 4 ? shrink_rows<Factors, 4, 4>(x, a + r * o.columns, o.columns, low)
                  : shrink_rows<Factors, 1, 4>(x, a + r * o.columns, o.columns, low);
    for (; r < end; next(1))
      tokens == 4 ? shrink_rows<Factors, 4, 1>(x, a + r * o.columns, o.columns, low)
                  : shrink_rows<Factors, 1, 1>(x, a + r * o.columns, o.columns, low);
    i += tokens;
  }
}

// V vectors of columns of T tokens; the sum over the rank is in its order, then base is added.
template <class Factors, int T, int V>
void expand_columns(const AdapterOperands& o, const float* const* low, const typename Factors::Number* b,
                    const int64_t* rows) {
  VA sums[T][V];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[t][v] = hn::Zero(DA());
  }
  for (int64_t r = 0; r < o.R; ++r) {
    VA factors[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) factors[v] = Factors::load(b + r * o.columns + v * kAdapterLanes);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const VA value = hn::Set(DA(), low[t][r]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[t][v] = hn::MulAdd(value, factors[v], sums[t][v]);
    }
  }
  for (int t = 0; t < T; ++t)
    for (int v = 0; v < V; ++v) {
      const int64_t at = rows[t] + v * kAdapterLanes;
      hn::StoreU(hn::Add(hn::LoadU(DA(), o.base + at), sums[t][v]), DA(), o.out + at);
    }
}

// Fewer columns than a vector has.
template <class Factors>
void expand_last_columns(const AdapterOperands& o, const float* low, const typename Factors::Number* b,
                         int64_t row, int64_t count) {
  VA sum = hn::Zero(DA());
  for (int64_t r = 0; r < o.R; ++r)
    sum = hn::MulAdd(hn::Set(DA(), low[r]), load_first<Factors>(b + r * o.columns, count), sum);
  alignas(64) float part[kAdapterLanes];
  hn::Store(hn::Add(load_first<F32Factors>(o.base + row, count), sum), DA(), part);
  std::copy_n(part, count, o.out + row);
}

// Columns [begin, end) of a tile's tokens.
template <class Factors>
void expand_tile(const AdapterOperands& o, const int32_t* order, const SlotTile& tile, int64_t begin,
                 int64_t end) {
  const auto* b = static_cast<const typename Factors::Number*>(o.factors) + tile.slot * o.R * o.columns;
  const float* low[4];
  int64_t rows[4];
  for (int32_t i = 0; i < tile.count;) {
    const int tokens = tile.count - i >= 4 ? 4 : 1;
    for (int t = 0; t < tokens; ++t) {
      low[t] = o.in + order[tile.first + i + t] * o.R;
      rows[t] = order[tile.first + i + t] * o.columns + begin;
    }
    int64_t n = begin;
    const auto next = [&](int64_t columns) {
      n += columns;
      for (int t = 0; t < tokens; ++t) rows[t] += columns;
    };
    for (; n + 4 * kAdapterLanes <= end; next(4 * kAdapterLanes))
      tokens == 4 ? expand_columns<Factors, 4, 4>(o, low, b + n, rows)
                  : expand_columns<Factors, 1, 4>(o, low, b + n, rows);
    for (; n + kAdapterLanes <= end; next(kAdapterLanes))
      tokens == 4 ? expand_columns<Factors, 4, 1>(o, low, b + n, rows)
                  : expand_columns<Factors, 1, 1>(o, low, b + n, rows);
    for (int t = 0; n < end && t < tokens; ++t)
      expand_last_columns<Factors>(o, low[t], b + n, rows[t], end - n);
    i += tokens;
  }
}

template <class Factors>
void adapter_tile_of(bool expands, const AdapterOperands& o, const int32_t* order, const SlotTile& tile,
                     int64_t begin, int64_t end) {
  return expands ? expand_tile<Factors>(o, order, tile, begin, end)
                 : shrink_tile<Factors>(o, order, tile, begin, end);
}

void adapter_tile(bool expands, DType stored, const AdapterOperands& o, const int32_t* order,
                  const SlotTile& tile, int64_t begin, int64_t end) {
  switch (stored) {
    case DType::kBF16: return adapter_tile_of<BF16Factors>(expands, o, order, tile, begin, end);
    case DType::kF16: return adapter_tile_of<F16Factors>(expands, o, order, tile, begin, end);
    default: return adapter_tile_of<F32Factors>(expands, o, order, tile, begin, end);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(adapter_tile);

namespace {

constexpr int64_t kShrinkRows = 8, kExpandColumns = 512;  // of a task

// The result for tokens without an adapter.
void without_adapter(bool expands, const AdapterOperands& o, const int32_t* order, const SlotTile& tile,
                     int64_t begin, int64_t end) {
  for (int32_t i = 0; i < tile.count; ++i) {
    const int64_t token = order[tile.first + i];
    if (!expands)
      std::fill(o.out + token * o.R + begin, o.out + token * o.R + end, 0.0f);
    else if (o.out != o.base)
      std::copy(o.base + token * o.columns + begin, o.base + token * o.columns + end,
                o.out + token * o.columns + begin);
  }
}

Result<PreparedKernel> prepare_grouped(const KernelSpec& spec, bool expands) {
  TSR_RETURN_IF_ERROR(simd_supported());
  for (const int operand : {0, expands ? 3 : 0})
    if (spec.input_dtype(operand) != DType::kF32)
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: this kernel computes in f32", to_text(spec.input_dtype(operand))));
  const auto dims = spec.input_dims(1);
  const DType stored = spec.input_dtype(1);
  const AdapterOperands sizes{nullptr, nullptr, nullptr, nullptr, dims[1], dims[2]};
  const TokenGroups groups{spec.input_elements(2), dims[0]};
  const int64_t most = expands ? sizes.columns : sizes.R, grain = expands ? kExpandColumns : kShrinkRows;
  const int64_t parts = (most + grain - 1) / grain;  // of a tile
  // The first phase groups the tokens.
  const auto tasks = [=](const LaunchArgs& args, int phase) -> int64_t {
    return phase == 0 ? groups.tokens > 0 : groups.tokens > 0 ? groups.tiles(args.workspace) * parts : 0;
  };
  const auto run = [=](const LaunchArgs& args, int phase, int64_t task) {
    if (phase == 0) return groups.group(args.in<int32_t>(2), args.workspace);
    AdapterOperands o = sizes;
    o.in = args.in<float>(0);
    o.factors = args.inputs[1];
    o.base = expands ? args.in<float>(3) : nullptr;
    o.out = args.out<float>(0);
    const SlotTile& tile = *groups.tile(args.workspace, task / parts);
    const int32_t* const order = groups.order(args.workspace);
    const int64_t begin = task % parts * grain, end = std::min(most, begin + grain);
    if (tile.slot < 0) return without_adapter(expands, o, order, tile, begin, end);
    HWY_DYNAMIC_DISPATCH(adapter_tile)(expands, stored, o, order, tile, begin, end);
  };
  const double read = static_cast<double>(std::min(groups.tokens, groups.slots)) /
                      static_cast<double>(std::max<int64_t>(groups.slots, 1));
  PreparedKernel prepared = simd_prepared(
      spec, 2 * static_cast<double>(groups.tokens) * static_cast<double>(sizes.R * sizes.columns),
      make_phased_kernel(2, true, tasks, run), groups.tokens > 0 ? groups.bytes() : 0);
  prepared.bytes -= (1 - read) * static_cast<double>(dtype_bytes(stored, spec.input_elements(1)));
  return prepared;
}

}  // namespace

// x [T, K], a [S, R, K], adapter [T] -> low [T, R]
Result<PreparedKernel> prepare_adapter_shrink_grouped(const KernelSpec& spec) {
  return prepare_grouped(spec, false);
}

// low [T, R], b [S, R, N], adapter [T], base [T, N] -> y [T, N]
Result<PreparedKernel> prepare_adapter_expand_grouped(const KernelSpec& spec) {
  return prepare_grouped(spec, true);
}

}  // namespace tessera::cpu
#endif
