// Gradients of norms over rows, centred (layer_norm) or not (rms_norm): of the rows, of the weights, and of
// both at once.
#pragma once

#include <type_traits>
#include <utility>

#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/mma.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

template <class T>
struct NormGrad {
  using W = Wide<T>;
  const T *dy, *x, *w, *addend;  // addend null for none
  const W *mean, *rstd;          // mean is null for rms_norm
  T* dx;                         // may be dy
  W* partial;                    // [sums][blocks][cols]; for both gradients at once
  int64_t rows, cols;
  W inverse;  // 1 / cols
};

// --- one gradient at a time ---

// Computes a row of dx, of any length.
template <class T, int kVec, bool kCentred>
struct NormGradInput {
  using W = Wide<T>;
  NormGrad<T> n;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * n.cols;
    const W scale = n.rstd[row], center = kCentred ? n.mean[row] : W(0);
    W sum = 0, projection = 0;  // means over c of g and of g * xhat
    team.template packs<kVec>(n.cols, [&](int64_t c) {
      W d[kVec], v[kVec], weight[kVec];
      load_pack(n.dy + at + c, d);
      load_pack(n.x + at + c, v);
      load_pack(n.w + c, weight);
      for (int i = 0; i < kVec; ++i) {
        const W g = d[i] * weight[i];
        sum += g;
        projection += g * (v[i] - center) * scale;
      }
    });
    if constexpr (kCentred) sum = team.sum(sum) * n.inverse;
    projection = team.sum(projection) * n.inverse;
    team.template packs<kVec>(n.cols, [&](int64_t c) {
      W d[kVec], v[kVec], weight[kVec];
      load_pack(n.dy + at + c, d);
      load_pack(n.x + at + c, v);
      load_pack(n.w + c, weight);
      for (int i = 0; i < kVec; ++i)
        d[i] = scale * (d[i] * weight[i] - (kCentred ? sum : W(0)) - (v[i] - center) * scale * projection);
      if (n.addend != nullptr) {
        W other[kVec];
        load_pack(n.addend + at + c, other);
        for (int i = 0; i < kVec; ++i) d[i] += other[i];
      }
      store_pack(n.dx + at + c, d);
    });
  }
};

// A row's contribution to dw, and to db.
template <class T, bool kCentred>
struct NormWeightTerm {
  using W = Wide<T>;
  const T *dy, *x;
  const W *mean, *rstd;
  int64_t cols;
  __device__ void operator()(int64_t row, int64_t c, W* sums) const {
    const W g = widen(dy[row * cols + c]), center = kCentred ? mean[row] : W(0);
    sums[0] += g * (widen(x[row * cols + c]) - center) * rstd[row];
    if constexpr (kCentred) sums[1] += g;
  }
};

// --- both gradients, and another gradient added to the first: every operand is read once ---

// A team of threads keeps its row in registers between the row's sums and its result. Every thread sums its
// columns' contributions to the weight gradients over the team's rows. Teams' sums are added in shared
// memory, blocks' in the workspace, in an order that depends on the shape alone.
//
// Column sums, in this order: dw; db of a norm that
// centres; optionally the sums of dx before rounding.

inline constexpr int kNormGradThreads = 256;

// A row has at most kTeam * kPacks packs of 16 bytes.
template <class T, int kTeam, int kPacks, int kSums>
__global__ void __launch_bounds__(kNormGradThreads) norm_grad_kernel(NormGrad<T> n) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T)), kTeams = kNormGradThreads / kTeam;
  constexpr bool kCentred = kSums > 1;
  const Team<kTeam> team{static_cast<int>(threadIdx.x) % kTeam};
  const int place = static_cast<int>(threadIdx.x) / kTeam;
  const auto column = [&](int p) { return int64_t{team.rank + p * kTeam} * kVec; };
  Pack<T, kVec> weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (column(p) < n.cols) weight[p] = *reinterpret_cast<const Pack<T, kVec>*>(n.w + column(p));
  W sums[kSums][kPacks][kVec] = {};
  for (int64_t row = int64_t{blockIdx.x} * kTeams + place; row < n.rows; row += int64_t{gridDim.x} * kTeams) {
    const int64_t at = row * n.cols;
    Pack<T, kVec> d[kPacks], v[kPacks], other[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= n.cols) continue;
      d[p] = *reinterpret_cast<const Pack<T, kVec>*>(n.dy + at + column(p));
      v[p] = *reinterpret_cast<const Pack<T, kVec>*>(n.x + at + column(p));
      if (n.addend != nullptr) other[p] = *reinterpret_cast<const Pack<T, kVec>*>(n.addend + at + column(p));
    }
    // Few warps have few bytes in flight: the team's next row is prefetched to the L2 cache meanwhile. (Not
    // where registers are all taken.)
    constexpr bool kFetches = kPacks * kSums < 12;
    static_assert(kPacks * 16 <= 128);  // a line a thread is enough
    const int64_t next = row + int64_t{gridDim.x} * kTeams, line = team.rank * (128 / int64_t{sizeof(T)});
    if (kFetches && next < n.rows && line < n.cols) {
      prefetch_to_l2(n.dy + next * n.cols + line);
      prefetch_to_l2(n.x + next * n.cols + line);
      if (n.addend != nullptr) prefetch_to_l2(n.addend + next * n.cols + line);
    }
    const W scale = n.rstd[row], center = kCentred ? n.mean[row] : W(0);
    W sum = 0, projection = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= n.cols) continue;
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const W g = widen(d[p].value[i]) * widen(weight[p].value[i]);
        sum += g;
        projection += g * (widen(v[p].value[i]) - center) * scale;
      }
    }
    if constexpr (kCentred) sum = team.sum(sum) * n.inverse;
    projection = team.sum(projection) * n.inverse;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= n.cols) continue;
      W dx[kVec];
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const W g = widen(d[p].value[i]), xhat = (widen(v[p].value[i]) - center) * scale;
        dx[i] = scale * (g * widen(weight[p].value[i]) - (kCentred ? sum : W(0)) - xhat * projection);
        if (n.addend != nullptr) dx[i] += widen(other[p].value[i]);
        sums[0][p][i] += g * xhat;
        if constexpr (kCentred) sums[1][p][i] += g;
        if constexpr (kSums == 3) sums[2][p][i] += dx[i];
      }
      store_pack(n.dx + at + column(p), dx);
    }
  }
  // Teams add their sums one after another.
  __shared__ W total[kTeams > 1 ? kSums : 1][kTeams > 1 ? kTeam * kPacks * kVec : 1];
  for (int turn = 0; turn + 1 < kTeams; ++turn) {
    if (place == turn)
#pragma unroll
      for (int k = 0; k < kSums; ++k)
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
#pragma unroll
          for (int i = 0; i < kVec; ++i) {
            W& into = total[k][column(p) + i];
            into = turn == 0 ? sums[k][p][i] : into + sums[k][p][i];
          }
    __syncthreads();
  }
  if (place != kTeams - 1) return;
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= n.cols) continue;
      W* to = n.partial + (int64_t{k} * gridDim.x + blockIdx.x) * n.cols + column(p);
#pragma unroll
      for (int i = 0; i < kVec; ++i) to[i] = (kTeams > 1 ? total[k][column(p) + i] : W(0)) + sums[k][p][i];
    }
}

// Team of rows of `cols` elements of T: a warp up to 4 packs a thread, then a block.
template <class T>
struct NormGradShape {
  static constexpr int kVec = 16 / static_cast<int>(sizeof(T)), kMostPacks = 4;
  int64_t rows, cols;
  bool by_warps;
  int packs;  // a thread

  NormGradShape(int64_t rows, int64_t cols) : rows(rows), cols(cols) {
    const int64_t in_row = (cols + kVec - 1) / kVec;
    by_warps = in_row <= 32 * kMostPacks;
    const int64_t team = by_warps ? 32 : kNormGradThreads;
    packs = static_cast<int>((in_row + team - 1) / team);
  }
  bool fits() const { return cols % kVec == 0 && packs >= 1 && packs <= kMostPacks && rows > 0; }
  // Blocks: whole waves of 132 multiprocessors. Three share one where a thread holds least (74 registers of
  // bf16 for one pack and one sum), one or two otherwise. Their sums in the workspace stay a few per cent of
  // the bytes they read.
  int64_t blocks(int sums) const {
    const int64_t teams = by_warps ? kNormGradThreads / 32 : 1;
    const int64_t most_by_blocks = packs == 1 && sums == 1 ? 396 : 528;
    const int64_t most = by_warps ? 264 : most_by_blocks;
    const int64_t wanted = (rows + teams - 1) / teams;
    return wanted < most ? wanted : most;
  }
  int64_t workspace_bytes(int sums) const {
    return blocks(sums) * cols * sums * static_cast<int64_t>(sizeof(Wide<T>));
  }
};

// Launches where `shape` fits and all addresses are multiples of 16. The sums by column go to `results`.
template <class T, int kSums, class S>
void launch_norm_grad(const LaunchArgs& args, const NormGradShape<T>& shape, NormGrad<T> n,
                      const ColumnResults<S>& results) {
  const auto blocks = static_cast<unsigned>(shape.blocks(kSums));
  n.partial = static_cast<Wide<T>*>(args.workspace);
  const auto by = [&](auto team, auto packs) {
    norm_grad_kernel<T, team.value, packs.value, kSums><<<blocks, kNormGradThreads, 0, args.stream>>>(n);
  };
  const auto with = [&](auto packs) {
    shape.by_warps ? by(std::integral_constant<int, 32>{}, packs)
                   : by(std::integral_constant<int, kNormGradThreads>{}, packs);
  };
  switch (shape.packs) {
    case 1: with(std::integral_constant<int, 1>{}); break;
    case 2: with(std::integral_constant<int, 2>{}); break;
    case 3: with(std::integral_constant<int, 3>{}); break;
    default: with(std::integral_constant<int, 4>{}); break;
  }
  launch_column_totals<S, kSums>(args, blocks, shape.cols, results);
}

// --- the kernels, with operands and results in the order of the ops ---

// Operands dy, x, w, (mean,) rstd (, addend) and result dx.
template <class T, bool kCentred>
NormGrad<T> norm_grad_of(const LaunchArgs& args, const Rows& rows, bool adds) {
  using W = Wide<T>;
  constexpr int kMean = 3, kRstd = kCentred ? 4 : 3;
  const double inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
  return {args.in<T>(0),
          args.in<T>(1),
          args.in<T>(2),
          adds ? args.in<T>(kRstd + 1) : nullptr,
          kCentred ? args.in<W>(kMean) : nullptr,
          args.in<W>(kRstd),
          args.out<T>(0),
          nullptr,
          rows.count,
          rows.cols,
          W(inverse)};
}

// Results dw (, db) from `first` on.
template <class S, bool kCentred>
ColumnResults<S> norm_weight_results(const LaunchArgs& args, int first) {
  return {{args.out<S>(first), kCentred ? args.out<S>(first + 1) : nullptr}};
}

// dy, x [R, C], w [C], statistics [R] -> dx [R, C]
template <bool kCentred>
Result<PreparedKernel> prepare_norm_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return NormGradInput<T, packed.value, kCentred>{norm_grad_of<T, kCentred>(args, rows, false)};
    });
  });
}

// dy, x [R, C], statistics [R] -> dw (, db) [C]
template <bool kCentred>
Result<PreparedKernel> prepare_norm_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    constexpr int kSums = kCentred ? 2 : 1;
    const Rows rows = rows_of(spec.input_dims(0));
    const ColumnChunks chunks(rows.count, rows.cols);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const NormWeightTerm<T, kCentred> term{args.in<T>(0), args.in<T>(1),
                                                                 kCentred ? args.in<W>(2) : nullptr,
                                                                 args.in<W>(kCentred ? 3 : 2), rows.cols};
                          launch_columns<T, kSums>(args, chunks, term,
                                                   norm_weight_results<T, kCentred>(args, 0));
                        }),
                        chunks.workspace_bytes<W>(kSums));
  });
}

// dy, x [R, C], w [C], statistics [R], addend [R, C] or none -> dx [R, C], dw (, db (, dx by column)) [C]
template <bool kCentred>
Result<PreparedKernel> prepare_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return with_sums_type<T>(spec, [&](auto sum) -> Result<PreparedKernel> {
      using S = decltype(sum);
      using W = Wide<T>;
      constexpr int kSums = kCentred ? 2 : 1;
      const Rows rows = rows_of(spec.input_dims(0));
      const bool adds = spec.input_count() == (kCentred ? 6 : 5);
      const bool sums_dx = kCentred && spec.output_count() == 4;
      const ColumnChunks chunks(rows.count, rows.cols);
      auto apart = make_kernel([=](const LaunchArgs& args) {
        // Weight gradients first: they alone read dy, whose place dx may take.
        const NormGrad<T> n = norm_grad_of<T, kCentred>(args, rows, adds);
        const NormWeightTerm<T, kCentred> term{n.dy, n.x, n.mean, n.rstd, n.cols};
        launch_columns<S, kSums>(args, chunks, term, norm_weight_results<S, kCentred>(args, 1));
        launch_rows(args.stream, rows.count, rows.cols, NormGradInput<T, 1, kCentred>{n});
        if (sums_dx) launch_columns<S, 1>(args, chunks, ColumnSum<T>{n.dx, n.cols}, {{args.out<S>(3)}});
      });
      int64_t workspace_bytes = chunks.workspace_bytes<W>(kSums);
      const NormGradShape<T> shape(rows.count, rows.cols);
      if (!shape.fits()) return memory_bound(spec, std::move(apart), workspace_bytes);
      if (const int64_t bytes = shape.workspace_bytes(kSums + (sums_dx ? 1 : 0)); bytes > workspace_bytes)
        workspace_bytes = bytes;
      auto together = make_kernel([=](const LaunchArgs& args) {
        const NormGrad<T> n = norm_grad_of<T, kCentred>(args, rows, adds);
        ColumnResults<S> results = norm_weight_results<S, kCentred>(args, 1);
        // A third sum is a hundred KiB of code a type; f64, which only tests use, goes without.
        if constexpr (kCentred && !std::is_same_v<T, double>)
          if (sums_dx) {
            results.out[2] = args.out<S>(3);
            return launch_norm_grad<T, 3>(args, shape, n, results);
          }
        launch_norm_grad<T, kSums>(args, shape, n, results);
        if (sums_dx) launch_columns<S, 1>(args, chunks, ColumnSum<T>{n.dx, n.cols}, {{args.out<S>(3)}});
      });
      return memory_bound(spec, where_aligned(spec, std::move(together), std::move(apart)), workspace_bytes);
    });
  });
}

}  // namespace tessera::cuda
