// Products of up to 4 rows with transposed matrices, as decoding makes them: bound by reading the matrices,
// and everything else is arranged around that.
//
// In flight. By Little's law 3.3 TB/s at some 0.8 us from request to data (loaded) are 2.6 MB on their way,
// 20 KB for each of an H100's 132 multiprocessors; 40 leave room for what is uneven. A lane asks for 128
// bytes before it uses the first, 4 KB a warp, 64 KB for the 16 warps of a multiprocessor (two blocks, of at
// most 128 registers a thread); and while it waits, the first 4 KB of the warp's next rows are on their way
// to the L2 cache, so that sums, barriers and the results of one group of rows cost no bandwidth. Before the
// launch waits for the one before it (overlap.cuh) every block has its first kMatvecAhead bytes fetched: they
// come while that one ends, or all the while where it leaves bandwidth unused, as attention does. What is
// left of that, where the matrices are small, goes to the matrix that is read next.
//
// Blocks. kMatvecBlocks stay and take a group of rows after the other, so that each makes the norm once. With
// a row a warp, 1536 rows are 192 groups of 8, 12 warps a multiprocessor and all of the matrix under way at
// once (a warp of 4 rows, 48 blocks of 8 warps, left 84 multiprocessors without work); 2 x 8960 rows are 2240
// groups, 8 or 9 a block.
//
// Rows. The more rows a warp sums, the less often x is loaded and widened. For one row of x that is no
// matter: at 15 bytes a cycle and multiprocessor a pack of bf16 takes 24 instructions of a lane, of the 128
// that a multiprocessor issues in a cycle. With 4 rows of x it is 72, and 56 with two rows a warp. Numbers of
// 4 bits take 8 bytes for 16 numbers, 2 chunks a cycle of some 60 instructions each: there issue and memory
// meet.
//
// Sums. A lane's own chunks in order, then a tree over the lanes: the same bits whatever kEach, the grid, and
// what else the launch does. Each addition that a product goes into has one such product, so that compilers
// have no choice about what to contract.
#pragma once

#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/matmul_finish.cuh"
#include "runtime/backends/cuda/kernels/matvec_plan.h"
#include "runtime/backends/cuda/kernels/mma.cuh"
#include "runtime/backends/cuda/kernels/narrow_weight.cuh"
#include "runtime/backends/cuda/kernels/norm_rows.cuh"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "runtime/backends/cuda/kernels/rope.cuh"

namespace tessera::cuda {

inline constexpr int kMatvecRows = 4, kMatvecWarps = 8, kMatvecThreads = kMatvecWarps * 32;
inline constexpr int kMatvecBlocks = 264;      // two for each of 132 multiprocessors; no sum depends on it
inline constexpr int kMatvecAhead = 64 << 10;  // 17 MB of all blocks, of 50 that the L2 cache has

// Items first, first + 1, ... of a part are a group's; item i is one row of the matrix, or a pair of them.
struct MatvecRow {
  int matrix, n;
};
__device__ inline MatvecRow matvec_row(const MatvecPart& part, int item, int second) {
  switch (part.pairing) {
    case Pairing::kGated: return {second, item};
    case Pairing::kRope: {
      if (part.is_interleaved) return {0, 2 * item + second};
      const int D = static_cast<int>(part.D), half = D / 2;
      return {0, item / half * D + item % half + second * half};
    }
    default: return {0, item};
  }
}

// A group of `rows` rows, of one part: those of pairs in two halves, all firsts before all seconds.
struct MatvecGroup {
  const MatvecPart& part;
  int first, slots;  // items first to first + slots - 1, as far as there are such

  __device__ static MatvecGroup of(const MatvecPlan& plan, int group, int rows) {
    int which = 0;
    while (which + 1 < plan.parts && group >= plan.part[which + 1].first_group) ++which;
    const MatvecPart& part = plan.part[which];
    const int slots = part.pairing != Pairing::kNone ? rows / 2 : rows;
    return {part, (group - part.first_group) * slots, slots};
  }
  // Past the end it is the last row again, of which nothing is stored.
  __device__ MatvecRow row(int r) const {
    const int item = first + r % slots, last = part.items() - 1;
    return matvec_row(part, item < last ? item : last, r / slots);
  }
};

// The rows of the norm, in shared memory: made as the kernel of the norm makes them (launch_rows), by the
// same number of threads each. The first block stores them.
template <class T>
__device__ __noinline__ void matvec_norm(const MatvecPlan& plan, T* to) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  const MatvecNorm& norm = plan.norm;
  const int64_t K = plan.K;
  const bool stores = blockIdx.x == 0;
  const W inverse = W(1 / double(K > 1 ? K : 1)), eps = W(norm.eps);
  W* rstd = stores ? static_cast<W*>(norm.rstd) : nullptr;
  const auto each_row = [&](const auto& row) {
    if (K / kVec <= 256) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      if (warp < plan.M) row(Team<32>{static_cast<int>(threadIdx.x) % 32}, warp);
    } else {
      for (int64_t m = 0; m < plan.M; ++m) row(Team<kMatvecThreads>{static_cast<int>(threadIdx.x)}, m);
    }
  };
  if (norm.is_layer_norm)
    each_row(LayerNormRow<T, kVec>{static_cast<const T*>(norm.x), static_cast<const T*>(norm.w),
                                   static_cast<const T*>(norm.b), to,
                                   stores ? static_cast<W*>(norm.mean) : nullptr, rstd, K, eps, inverse});
  else
    each_row(RmsNormRow<T, kVec>{static_cast<const T*>(norm.x), static_cast<const T*>(norm.w), to, rstd, K,
                                 eps, inverse});
  __syncthreads();
  if (stores && norm.y != nullptr)
    for (int64_t i = threadIdx.x; i < plan.M * K; i += kMatvecThreads) static_cast<T*>(norm.y)[i] = to[i];
}

template <class W>
__device__ inline W matvec_map(MapKind kind, W x) {
  switch (kind) {
    case MapKind::kGeluTanh: return gelu_tanh(x);
    case MapKind::kGeluExact: return gelu_exact(x);
    case MapKind::kRelu: return x > W(0) ? x : W(0);
    default: return silu(x);
  }
}

// What becomes of the sums of a group, totals [M, rows]: a thread an item, rounded wherever the separate
// kernels round.
template <class T>
__device__ __noinline__ void matvec_finish(const MatvecPlan& plan, int group, int rows,
                                           const Wide<T>* totals) {
  using W = Wide<T>;
  const auto [part, first, slots] = MatvecGroup::of(plan, group, rows);
  const int m = static_cast<int>(threadIdx.x) / slots, slot = static_cast<int>(threadIdx.x) % slots,
            item = first + slot;
  if (m >= plan.M || item >= part.items()) return;

  const auto product = [&](int second) {
    const MatvecRow row = matvec_row(part, item, second);
    W sum = totals[m * rows + slot + second * slots];
    const auto* bias = static_cast<const T*>(part.bias[row.matrix]);
    if (bias != nullptr) sum += widen(bias[row.n]);
    if (part.summand != nullptr) sum += widen(static_cast<const T*>(part.summand)[m * part.N + row.n]);
    if (part.pre != nullptr) static_cast<T*>(part.pre)[m * part.N + row.n] = narrow<T>(sum);
    const T result = narrow<T>(activate(part.activation, sum));
    if (auto* y = static_cast<T*>(part.y[row.matrix]); y != nullptr) y[m * part.N + row.n] = result;
    return result;
  };
  const auto store = [&](int n, T value) {
    const int64_t at = m * part.N + n;
    if (part.mapped != nullptr) static_cast<T*>(part.mapped)[at] = value;
    if (part.addend != nullptr) {
      value = narrow<T>(widen(static_cast<const T*>(part.addend)[at]) + widen(value));
      if (part.added != nullptr) static_cast<T*>(part.added)[at] = value;
    }
    if (part.cache != nullptr) {
      const int64_t b = m / plan.T, t = m % plan.T, row = plan.start[b] + t;
      if (t < plan.length[b] && row >= 0 && row < part.S)
        static_cast<T*>(part.cache)[(b * part.S + row) * part.N + n] = value;
    }
  };

  const T value = product(0);
  if (part.pairing == Pairing::kGated) {
    store(item, narrow<T>(silu(widen(value)) * widen(product(1))));
  } else if (part.pairing == Pairing::kRope) {
    const W u = widen(value), v = widen(product(1));
    const auto turn = Turn<W>::of(part.sign * static_cast<double>(part.positions[m]), item % (part.D / 2),
                                  part.D, part.log_theta);
    store(matvec_row(part, item, 0).n, narrow<T>(turn.first(u, v)));
    store(matvec_row(part, item, 1).n, narrow<T>(turn.second(u, v)));
  } else {
    store(item, part.has_map ? narrow<T>(matvec_map(part.map, widen(value))) : value);
  }
}

template <class T, class Weight, int kM, int kEach>
__global__ void __launch_bounds__(kMatvecThreads, 2) matvec_kernel(const __grid_constant__ MatvecPlan plan) {
  using W = Wide<T>;
  using Chunk = typename Weight::Chunk;
  constexpr int kRows = kMatvecWarps * kEach;
  constexpr int kInFlight = 128 / static_cast<int>(sizeof(Chunk)) / kEach;
  constexpr int kNumbers = Weight::kNumbers, kRun = Weight::kRun;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ W totals[2][kM * kRows];  // by turns, so that one barrier a group suffices

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Team<32> team{static_cast<int>(threadIdx.x) % 32};
  const auto row_begin = [&](const MatvecGroup& rows, const MatvecRow& at) {
    return static_cast<const uint8_t*>(rows.part.w[at.matrix]) + at.n * plan.row_bytes;
  };

  let_next_begin();
  int64_t fetched = 0;
  for (int64_t ahead = blockIdx.x; fetched < kMatvecAhead && ahead < plan.row_groups;
       ahead += gridDim.x, fetched += kRows * plan.row_bytes) {
    const MatvecGroup rows = MatvecGroup::of(plan, static_cast<int>(ahead), kRows);
    for (int j = 0; j < kEach; ++j) {
      const uint8_t* begin = row_begin(rows, rows.row(warp * kEach + j));
      for (int64_t line = int64_t{128} * team.rank; line < plan.row_bytes; line += 128 * 32)
        prefetch_to_l2(begin + line);
    }
  }
  if (plan.next != nullptr) {
    const int64_t left = (kMatvecAhead - fetched) * gridDim.x;
    const int64_t most = left < plan.next_bytes ? left : plan.next_bytes;
    for (int64_t line = int64_t{128} * (blockIdx.x * kMatvecThreads + threadIdx.x); line < most;
         line += int64_t{128} * kMatvecThreads * gridDim.x)
      prefetch_to_l2(static_cast<const uint8_t*>(plan.next) + line);
  }
  wait_for_previous();

  const Chunk* row[kEach];
  const __half* scale[kEach];
  // The rows of this warp in a group, and the first of their bytes on the way: 4 KB, a line a lane.
  const auto go_to = [&](int group) {
    const MatvecGroup rows = MatvecGroup::of(plan, group, kRows);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const MatvecRow at = rows.row(warp * kEach + j);
      const uint8_t* begin = row_begin(rows, at);
      row[j] = reinterpret_cast<const Chunk*>(begin);
      scale[j] = Weight::kScaled ? static_cast<const __half*>(rows.part.scale[at.matrix]) + at.n * plan.groups
                                 : nullptr;
      constexpr int kLines = 32 / kEach;
      if (const int64_t line = int64_t{128} * (team.rank % kLines);
          team.rank / kLines == j && line < plan.row_bytes)
        prefetch_to_l2(begin + line);
    }
  };
  int group = static_cast<int>(blockIdx.x);
  go_to(group);

  const T* x = static_cast<const T*>(plan.x);
  if (plan.norm.is_there) {
    matvec_norm(plan, reinterpret_cast<T*>(shared));
    x = reinterpret_cast<const T*>(shared);
  }

  const int chunks = static_cast<int>(plan.K / kNumbers), scaled = static_cast<int>(plan.group);
  for (int turn = 0; group < plan.row_groups; group += static_cast<int>(gridDim.x), turn ^= 1) {
    const Chunk* from[kEach];
    const __half* factors[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      from[j] = row[j];
      factors[j] = scale[j];
    }
    if (const int next = group + static_cast<int>(gridDim.x); next < plan.row_groups) go_to(next);

    W sum[kM][kEach] = {};
    for (int begin = team.rank; begin < chunks; begin += 32 * kInFlight) {
      Chunk loaded[kInFlight][kEach];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          if (begin + 32 * u < chunks) loaded[u][j] = from[j][begin + 32 * u];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int c = begin + 32 * u;
        if (c >= chunks) break;
        W left[kM][kNumbers / kRun][kRun];
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int r = 0; r < kNumbers / kRun; ++r)
            load_run<kRun>(x + m * plan.K + Weight::run(c, r), left[m][r]);
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          W number[kNumbers];
          Weight::widen(loaded[u][j], number);
          if constexpr (Weight::kScaled) {
            const W factor = widen(factors[j][static_cast<int>(Weight::run(c, 0)) / scaled]);
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              W dot = 0;
#pragma unroll
              for (int i = 0; i < kNumbers; ++i) dot += number[i] * left[m][i / kRun][i % kRun];
              sum[m][j] += factor * dot;
            }
          } else {
#pragma unroll
            for (int m = 0; m < kM; ++m)
#pragma unroll
              for (int i = 0; i < kNumbers; ++i) sum[m][j] += number[i] * left[m][i / kRun][i % kRun];
          }
        }
      }
    }

#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const W total = team.sum(sum[m][j]);
        if (team.rank == 0) totals[turn][m * kRows + warp * kEach + j] = total;
      }
    __syncthreads();
    matvec_finish<T>(plan, group, kRows, totals[turn]);
  }
}

// Settles which group of rows is whose, for `each` rows a warp.
inline void set_row_groups(MatvecPlan& plan, int each) {
  plan.row_groups = 0;
  for (MatvecPart& part : std::span(plan.part, static_cast<size_t>(plan.parts))) {
    const int32_t slots = kMatvecWarps * each / (part.pairing != Pairing::kNone ? 2 : 1);
    part.first_group = plan.row_groups;
    plan.row_groups += part.items() / slots + (part.items() % slots != 0);
  }
}

template <class T, class Weight, int kM>
void launch_matvec_of(const LaunchArgs& args, MatvecPlan& plan) {
  const size_t bytes = plan.norm.is_there ? static_cast<size_t>(plan.M * plan.K) * sizeof(T) : 0;
  const auto grid = [&] {
    return static_cast<unsigned>(plan.row_groups < kMatvecBlocks ? plan.row_groups : kMatvecBlocks);
  };
  // Two rows a warp where that helps and still gives every block some.
  if constexpr (Weight::kScaled || kM > 1) {
    set_row_groups(plan, 2);
    if (plan.row_groups >= kMatvecBlocks) {
      launch_overlapping(matvec_kernel<T, Weight, kM, 2>, grid(), kMatvecThreads, bytes, args, plan);
      return;
    }
  }
  set_row_groups(plan, 1);
  launch_overlapping(matvec_kernel<T, Weight, kM, 1>, grid(), kMatvecThreads, bytes, args, plan);
}
template <class T, class Weight>
void launch_matvec(const LaunchArgs& args, MatvecPlan plan) {
  switch (plan.M) {
    case 1: return launch_matvec_of<T, Weight, 1>(args, plan);
    case 2: return launch_matvec_of<T, Weight, 2>(args, plan);
    case 3: return launch_matvec_of<T, Weight, 3>(args, plan);
    default: return launch_matvec_of<T, Weight, 4>(args, plan);
  }
}

template <class T, class Weight>
std::unique_ptr<Kernel> matvec_of_plan(const MatvecPlan& plan) {
  return make_kernel([plan](const LaunchArgs& args) { launch_matvec<T, Weight>(args, plan); });
}
// A product by itself, and what it is for launches of several.
template <class T, class Weight>
std::unique_ptr<Kernel> matvec_of_product(const KernelSpec& spec, ProductStep product,
                                          std::unique_ptr<Kernel> elsewhere) {
  product.row_bytes = Weight::row_bytes(product.K);
  product.operands = spec.input_count();
  product.kernel = matvec_of_plan<T, Weight>;
  const DecodeStep step{spec.input_dtype(0), product};
  auto alone = make_kernel(
      [step](const LaunchArgs& args) { launch_matvec<T, Weight>(args, plan_product(step, args)); });
  return as_decode_step(where_aligned(spec, std::move(alone), std::move(elsewhere)), step);
}

}  // namespace tessera::cuda
