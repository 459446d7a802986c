// Both gradients of a norm over rows, and another gradient added to the first: every operand is read once. A
// team of threads keeps its row in registers between the row's sums and its result. What its columns give to
// the gradients of weights every thread sums over the rows that its team makes; teams' sums meet in shared
// memory, blocks' in the workspace, in an order that depends on the shape alone.
#pragma once

#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

template <class T>
struct NormGrad {
  using W = Wide<T>;
  const T *dy, *x, *w, *addend;  // addend null for none
  const W *mean, *rstd;          // mean null where the norm does not centre
  T* dx;                         // may be dy
  W* partial;                    // [sums][blocks][cols]
  int64_t rows, cols;
  W inverse;  // 1 / cols
};

inline constexpr int kNormGradThreads = 256;

// A row lies in kTeam * kPacks packs of 16 bytes at most.
template <class T, int kTeam, int kPacks, bool kCentred>
__global__ void __launch_bounds__(kNormGradThreads) norm_grad_kernel(NormGrad<T> n) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T)), kTeams = kNormGradThreads / kTeam;
  constexpr int kSums = kCentred ? 2 : 1;
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
      }
      store_pack(n.dx + at + column(p), dx);
    }
  }
  // Team after team adds what it has to what those before it left.
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

// How rows of `cols` elements of T are made: by a warp up to 4 packs a thread, then by a block.
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
  // Two blocks a multiprocessor of an H100 where a thread holds much, four where it holds little. What blocks
  // leave in the workspace stays a few per cent of what they read.
  int64_t blocks() const {
    const int64_t teams = by_warps ? kNormGradThreads / 32 : 1, most = by_warps ? 264 : 528;
    const int64_t wanted = (rows + teams - 1) / teams;
    return wanted < most ? wanted : most;
  }
  template <int kSums>
  int64_t workspace_bytes() const {
    return blocks() * cols * kSums * static_cast<int64_t>(sizeof(Wide<T>));
  }
};

// `shape` fits, and all addresses are multiples of 16. The gradients of weights go to `results`.
template <class T, bool kCentred>
void launch_norm_grad(const LaunchArgs& args, const NormGradShape<T>& shape, NormGrad<T> n,
                      const ColumnResults<T>& results) {
  const auto blocks = static_cast<unsigned>(shape.blocks());
  n.partial = static_cast<Wide<T>*>(args.workspace);
  const auto by = [&](auto team, auto packs) {
    norm_grad_kernel<T, team.value, packs.value, kCentred><<<blocks, kNormGradThreads, 0, args.stream>>>(n);
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
  launch_column_totals<T, kCentred ? 2 : 1>(args, shape.blocks(), shape.cols, results);
}

}  // namespace tessera::cuda
