// adapter_outer in f32: a product of matrices for each slot and row, over the row's tokens of that slot. Sums of a tile of ranks
// and columns stay in registers over a block of tokens. An element's sums are the same whatever tile or task computes it.
#include <algorithm>
#include <span>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/token_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/adapter_outer_grouped.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef TSR_ADAPTER_OUTER_GROUPED_CC_ONCE_
#define TSR_ADAPTER_OUTER_GROUPED_CC_ONCE_
namespace tessera::cpu {
namespace {

// Tokens of a slot within a row that are summed before they are added: 32 rows of kOuterColumns stay in the first cache.
constexpr int kBlockTokens = 32;
constexpr int64_t kOuterColumns = 96, kOuterRanks = 64;  // of a task

// The part of a slot's sums that a task computes: ranks and columns from those that the pointers begin at.
struct OuterPart {
  const float *low, *x;  // of token 0
  float* sums;
  int64_t tokens, R, K;  // tokens of a row; the strides
  int64_t ranks, columns;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DO = hn::CappedTag<float, 16>;
using VO = hn::Vec<DO>;
constexpr int64_t kOuterLanes = static_cast<int64_t>(hn::MaxLanes(DO()));
constexpr int kTileRanks = kOuterLanes >= 16 ? 8 : 4;  // with 3 vectors of columns: within the registers

// A block of tokens.
struct OuterBlock {
  const float *low[kBlockTokens], *x[kBlockTokens];
  int count;
};

// sums += the block's products, for M ranks and V vectors of columns.
template <int M, int V>
void outer_tile(const OuterBlock& block, int64_t r, int64_t k, float* sums, int64_t stride) {
  VO totals[M][V];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) totals[m][v] = hn::Zero(DO());
  }
  for (int t = 0; t < block.count; ++t) {
    const float *const x = block.x[t] + k, *const low = block.low[t] + r;
    VO columns[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) columns[v] = hn::LoadU(DO(), x + v * kOuterLanes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const VO factor = hn::Set(DO(), low[m]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) totals[m][v] = hn::MulAdd(factor, columns[v], totals[m][v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const at = sums + (r + m) * stride + k + v * kOuterLanes;
      hn::StoreU(hn::Add(hn::LoadU(DO(), at), totals[m][v]), DO(), at);
    }
  }
}

// The same for fewer columns than a vector has.
void outer_last_columns(const OuterBlock& block, int64_t r, int64_t k, int64_t columns, float* sums, int64_t stride) {
  alignas(64) float part[kOuterLanes] = {};
  VO total = hn::Zero(DO());
  for (int t = 0; t < block.count; ++t) {
    std::copy_n(block.x[t] + k, columns, part);
    total = hn::MulAdd(hn::Set(DO(), block.low[t][r]), hn::Load(DO(), part), total);
  }
  float* const at = sums + r * stride + k;
  std::copy_n(at, columns, part);
  hn::Store(hn::Add(hn::Load(DO(), part), total), DO(), part);
  std::copy_n(part, columns, at);
}

template <int V>
void outer_columns(const OuterBlock& block, int64_t ranks, int64_t k, float* sums, int64_t stride) {
  int64_t r = 0;
  for (; r + kTileRanks <= ranks; r += kTileRanks) outer_tile<kTileRanks, V>(block, r, k, sums, stride);
  for (; r < ranks; ++r) outer_tile<1, V>(block, r, k, sums, stride);
}

void outer_block(const OuterPart& part, const OuterBlock& block, float* sums, int64_t stride) {
  int64_t k = 0;
  for (; k + 3 * kOuterLanes <= part.columns; k += 3 * kOuterLanes) outer_columns<3>(block, part.ranks, k, sums, stride);
  for (; k + kOuterLanes <= part.columns; k += kOuterLanes) outer_columns<1>(block, part.ranks, k, sums, stride);
  for (int64_t r = 0; k < part.columns && r < part.ranks; ++r)
    outer_last_columns(block, r, k, part.columns - k, sums, stride);
}

// Adds the products of a slot's tokens, all of one row. `scratch`: kOuterRanks kOuterColumns.
void outer_row(const OuterPart& part, std::span<const int32_t> order, float* scratch) {
  OuterBlock block;
  const bool is_one_block = order.size() <= size_t{kBlockTokens};
  if (!is_one_block) std::fill_n(scratch, part.ranks * kOuterColumns, 0.0f);
  for (size_t first = 0; first < order.size(); first += kBlockTokens) {
    block.count = static_cast<int>(std::min<size_t>(kBlockTokens, order.size() - first));
    for (int t = 0; t < block.count; ++t) {
      const int64_t token = order[first + static_cast<size_t>(t)];
      block.low[t] = part.low + token * part.R;
      block.x[t] = part.x + token * part.K;
    }
    outer_block(part, block, is_one_block ? part.sums : scratch, is_one_block ? part.K : kOuterColumns);
  }
  for (int64_t r = 0; !is_one_block && r < part.ranks; ++r)
    for (int64_t k = 0; k < part.columns; ++k) part.sums[r * part.K + k] += scratch[r * kOuterColumns + k];
}

void outer_slot(const OuterPart& part, std::span<const int32_t> order, float* scratch) {
  while (!order.empty()) {
    const int64_t end = (order[0] / part.tokens + 1) * part.tokens;
    const auto count = static_cast<size_t>(
        std::partition_point(order.begin(), order.end(), [&](int32_t token) { return token < end; }) - order.begin());
    outer_row(part, order.first(count), scratch);
    order = order.subspan(count);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(outer_slot);

namespace {

struct OuterSizes {
  int64_t S, R, K, tokens;  // tokens of a row
  int64_t rank_parts, column_parts;

  int64_t tasks() const { return S * rank_parts * column_parts; }
};

// Task `task` of a launch whose tokens are grouped.
void outer_task(const OuterSizes& sizes, const TokenGroups& groups, const LaunchArgs& args, int64_t task, bool from_zero) {
  const int64_t slot = task / (sizes.rank_parts * sizes.column_parts);
  const int64_t r = task / sizes.column_parts % sizes.rank_parts * kOuterRanks;
  const int64_t k = task % sizes.column_parts * kOuterColumns, at = (slot * sizes.R + r) * sizes.K + k;
  const OuterPart part{args.in<float>(0) + r,
                       args.in<float>(1) + k,
                       args.out<float>(0) + at,
                       sizes.tokens,
                       sizes.R,
                       sizes.K,
                       std::min(kOuterRanks, sizes.R - r),
                       std::min(kOuterColumns, sizes.K - k)};
  if (from_zero || args.inputs[3] != args.outputs[0])
    for (int64_t rank = 0; rank < part.ranks; ++rank) {
      float* const to = part.sums + rank * sizes.K;
      if (from_zero)
        std::fill_n(to, part.columns, 0.0f);
      else
        std::copy_n(args.in<float>(3) + at + rank * sizes.K, part.columns, to);
    }
  if (groups.tokens == 0) return;
  const auto order = groups.of_slot(args.workspace, slot);
  if (order.empty()) return;
  Scratch scratch(args.pool, kOuterRanks * kOuterColumns);
  HWY_DYNAMIC_DISPATCH(outer_slot)(part, order, scratch.floats(kOuterRanks * kOuterColumns));
}

Result<PreparedKernel> prepare_outer_grouped(const KernelSpec& spec, bool from_zero) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const auto dims = spec.output_dims(0), token_dims = spec.input_dims(2);
  const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const OuterSizes sizes{dims[0],
                         dims[1],
                         dims[2],
                         token_dims.empty() ? 1 : token_dims.back(),
                         parts(dims[1], kOuterRanks),
                         parts(dims[2], kOuterColumns)};
  const TokenGroups groups{spec.input_elements(2), sizes.S};
  // The first phase groups the tokens.
  const auto tasks = [=](const LaunchArgs&, int phase) -> int64_t {
    return phase == 0 ? groups.tokens > 0 : sizes.tasks();
  };
  const auto run = [=](const LaunchArgs& args, int phase, int64_t task) {
    if (phase == 0) return groups.group(args.in<int32_t>(2), args.workspace);
    outer_task(sizes, groups, args, task, from_zero);
  };
  PreparedKernel prepared =
      simd_prepared(spec, 2 * static_cast<double>(groups.tokens) * static_cast<double>(sizes.R * sizes.K),
                    make_phased_kernel(2, true, tasks, run), groups.tokens > 0 ? groups.bytes() : 0);
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace

// low [..., T, R], x [..., T, K], adapter [..., T], sum [S, R, K] -> sum
Result<PreparedKernel> prepare_adapter_outer_grouped(const KernelSpec& spec) {
  return prepare_outer_grouped(spec, false);
}

Result<PreparedKernel> prepare_adapter_outer_part_grouped(const KernelSpec& spec) {
  return prepare_outer_grouped(spec, true);
}

}  // namespace tessera::cpu
#endif
