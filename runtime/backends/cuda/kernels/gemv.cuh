// Products of up to 4 rows with transposed matrices, for decoding: bound by reading the matrices, and
// everything else is arranged around that.
//
// Loads in flight. By Little's law 3.3 TB/s at some 0.8 us from request to data (loaded) are 2.6 MB in
// flight, 20 KB for each of an H100's 132 multiprocessors; 40 leave room for imbalance. A lane requests 128
// bytes before it uses the first, 4 KB a warp, 64 KB for the 16 warps of a multiprocessor (two blocks, of at
// most 128 registers a thread). While it waits, the first 4 KB of the warp's next rows are on their way to
// the L2 cache, so that sums, barriers and the results of one group of rows cost no bandwidth. Before the
// launch waits for its predecessor (overlap.cuh), every block prefetches its first kGemvAhead bytes: they
// arrive while the predecessor ends, or during it where it leaves bandwidth unused, as attention does. Where
// the matrices are small, the rest of that allowance prefetches the matrix that is read next.
//
// Blocks. kGemvBlocks stay resident and take one group of rows after another, so that each computes the
// norm once. With a row a warp, 1536 rows are 192 groups of 8, 12 warps a multiprocessor and all of the
// matrix in flight at once (a warp of 4 rows, 48 blocks of 8 warps, left 84 multiprocessors idle); 2 x 8960
// rows are 2240 groups, 8 or 9 a block.
//
// Sums (gemv_lanes.cuh): a lane's own chunks in order and a tree over the lanes. The bits depend neither on kEach
// nor on the grid nor on the rest of the launch. Each addition has one product as operand, so that compilers
// have no choice of which to contract.
#pragma once

#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/gemv_lanes.cuh"
#include "runtime/backends/cuda/kernels/gemv_plan.h"
#include "runtime/backends/cuda/kernels/matmul_finish.cuh"
#include "runtime/backends/cuda/kernels/mma.cuh"
#include "runtime/backends/cuda/kernels/norm_rows.cuh"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "runtime/backends/cuda/kernels/rope.cuh"

namespace tessera::cuda {

// Computes the rows of the norm in shared memory as the norm's kernel does (launch_rows), with the same
// number of threads each. The first block stores them.
template <class T>
__device__ __noinline__ void gemv_norm(const GemvPlan& plan, T* to) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  const GemvNorm& norm = plan.norm;
  const int64_t K = plan.K;
  const bool stores = blockIdx.x == 0;
  const W inverse = W(norm.inverse), eps = W(norm.eps);
  W* rstd = stores ? static_cast<W*>(norm.rstd) : nullptr;
  const auto each_row = [&](const auto& row) {
    if (K / kVec <= 256) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      if (warp < plan.M) row(Team<32>{static_cast<int>(threadIdx.x) % 32}, warp);
    } else {
      for (int64_t m = 0; m < plan.M; ++m) row(Team<kGemvThreads>{static_cast<int>(threadIdx.x)}, m);
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
    for (int64_t i = threadIdx.x; i < plan.M * K; i += kGemvThreads) static_cast<T*>(norm.y)[i] = to[i];
}

template <class W>
__device__ inline W gemv_map(MapKind kind, W x) {
  switch (kind) {
    case MapKind::kGeluTanh: return gelu_tanh(x);
    case MapKind::kGeluExact: return gelu_exact(x);
    case MapKind::kRelu: return x > W(0) ? x : W(0);
    default: return silu(x);
  }
}

// Stores the results of a group from its sums, totals [M, rows]: a thread an item, rounded wherever the separate
// kernels round.
template <class T>
__device__ __noinline__ void gemv_finish(const GemvPlan& plan, int group, int rows, const Wide<T>* totals) {
  using W = Wide<T>;
  const auto [part, first, slots] = GemvGroup::of(plan, group, rows);
  const int m = static_cast<int>(threadIdx.x) / slots, slot = static_cast<int>(threadIdx.x) % slots,
            item = first + slot;
  if (m >= plan.M || item >= part.items()) return;

  const auto product = [&](int second) {
    const GemvRow row = gemv_row(part, item, second);
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
    if (part.pages != nullptr) {
      const int64_t page_row = plan.slot[m];
      if (page_row >= 0 && page_row < part.slots)
        static_cast<T*>(part.pages)[page_row * part.N + n] = value;
    }
  };

  const T value = product(0);
  if (part.pairing == Pairing::kGated) {
    store(item, narrow<T>(silu(widen(value)) * widen(product(1))));
  } else if (part.pairing == Pairing::kRope) {
    const W u = widen(value), v = widen(product(1));
    const auto turn = Turn<W>::of(part.sign * static_cast<double>(part.positions[m]), item % (part.D / 2),
                                  part.D, part.log_theta);
    store(gemv_row(part, item, 0).n, narrow<T>(turn.first(u, v)));
    store(gemv_row(part, item, 1).n, narrow<T>(turn.second(u, v)));
  } else {
    store(item, part.has_map ? narrow<T>(gemv_map(part.map, widen(value))) : value);
  }
}

template <class T, class Weight, int kM, int kEach>
__global__ void __launch_bounds__(kGemvThreads, 2) gemv_kernel(const __grid_constant__ GemvPlan plan) {
  using Sums = LaneSums<T, Weight, kM, kEach>;
  constexpr int kRows = Sums::kRows;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ Wide<T> totals[2][kM * kRows];  // double buffered: one barrier a group suffices
  // A copy of the plan for the functions called: as parameters it would come through the caches, one miss
  // after another, between the sums and their results.
  __shared__ GemvPlan shared_plan;

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  let_next_begin();
  if (plan.norm.is_there) {
    const int64_t line = 128 / static_cast<int64_t>(sizeof(T));
    for (int64_t at = line * threadIdx.x; at < plan.K; at += line * kGemvThreads) {
      prefetch_to_l2(static_cast<const T*>(plan.norm.w) + at);
      if (plan.norm.is_layer_norm) prefetch_to_l2(static_cast<const T*>(plan.norm.b) + at);
    }
  }
  int64_t fetched = 0;
  for (int64_t ahead = blockIdx.x; fetched < kGemvAhead && ahead < plan.row_groups;
       ahead += gridDim.x, fetched += kRows * plan.row_bytes) {
    const GemvGroup rows = GemvGroup::of(plan, static_cast<int>(ahead), kRows);
    for (int j = 0; j < kEach; ++j) {
      const GemvRow row = rows.row(warp * kEach + j);
      const uint8_t* begin = rows.begin(plan, row);
      for (int64_t line = int64_t{128} * lane; line < plan.row_bytes; line += 128 * 32)
        prefetch_to_l2(begin + line);
    }
  }
  if (plan.next != nullptr) {
    const int64_t left = (kGemvAhead - fetched) * gridDim.x;
    const int64_t most = left < plan.next_bytes ? left : plan.next_bytes;
    for (int64_t line = int64_t{128} * (blockIdx.x * kGemvThreads + threadIdx.x); line < most;
         line += int64_t{128} * kGemvThreads * gridDim.x)
      prefetch_to_l2(static_cast<const uint8_t*>(plan.next) + line);
  }
  constexpr unsigned kWords = sizeof(GemvPlan) / sizeof(uint64_t);
  static_assert(sizeof(GemvPlan) % sizeof(uint64_t) == 0 && kWords <= kGemvThreads);
  if (threadIdx.x < kWords)
    reinterpret_cast<uint64_t*>(&shared_plan)[threadIdx.x] =
        reinterpret_cast<const uint64_t*>(&plan)[threadIdx.x];
  int group = static_cast<int>(blockIdx.x);
  typename Sums::Rows next = Sums::rows(plan, GemvGroup::of(plan, group, kRows));
  __syncthreads();
  wait_for_previous();

  // Finds the rows of a group, and prefetches their first bytes: 4 KB a warp, a line a lane.
  const auto go_to = [&](int group) {
    const GemvGroup rows = GemvGroup::of(plan, group, kRows);
    constexpr int kLines = 32 / kEach;
    const GemvRow row = rows.row(warp * kEach + lane / kLines);
    const int64_t line = lane % kLines;
    if (128 * line < plan.row_bytes) prefetch_to_l2(rows.begin(plan, row) + 128 * line);
    return Sums::rows(plan, rows);
  };
  const T* x = static_cast<const T*>(plan.x);
  if (plan.norm.is_there) {
    gemv_norm(shared_plan, reinterpret_cast<T*>(shared));
    x = reinterpret_cast<const T*>(shared);
  }

  for (int turn = 0; group < plan.row_groups; group += static_cast<int>(gridDim.x), turn ^= 1) {
    const typename Sums::Rows rows = next;
    if (const int later = group + static_cast<int>(gridDim.x); later < plan.row_groups) next = go_to(later);
    Sums::sum(plan, rows, x, totals[turn]);
    __syncthreads();
    gemv_finish<T>(shared_plan, group, kRows, totals[turn]);
  }
}

// Assigns groups of rows to blocks, for `each` rows a warp.
inline void set_row_groups(GemvPlan& plan, int each) {
  plan.row_groups = 0;
  for (GemvPart& part : std::span(plan.part, static_cast<size_t>(plan.parts))) {
    const int32_t slots = kGemvWarps * each / (part.pairing != Pairing::kNone ? 2 : 1);
    part.first_group = plan.row_groups;
    plan.row_groups += part.items() / slots + (part.items() % slots != 0);
  }
}

template <class T, class Weight, int kM>
void launch_gemv_of(const LaunchArgs& args, GemvPlan& plan) {
  const size_t bytes = plan.norm.is_there ? static_cast<size_t>(plan.M * plan.K) * sizeof(T) : 0;
  const auto grid = [&] {
    return static_cast<unsigned>(plan.row_groups < kGemvBlocks ? plan.row_groups : kGemvBlocks);
  };
  // Two rows a warp where that helps and still gives every block some.
  if constexpr (kM > 1) {
    set_row_groups(plan, 2);
    if (plan.row_groups >= kGemvBlocks) {
      launch_overlapping(gemv_kernel<T, Weight, kM, 2>, grid(), kGemvThreads, bytes, args, plan);
      return;
    }
  }
  set_row_groups(plan, 1);
  launch_overlapping(gemv_kernel<T, Weight, kM, 1>, grid(), kGemvThreads, bytes, args, plan);
}
template <class T, class Weight>
void launch_gemv(const LaunchArgs& args, GemvPlan plan) {
  switch (plan.M) {
    case 1: return launch_gemv_of<T, Weight, 1>(args, plan);
    case 2: return launch_gemv_of<T, Weight, 2>(args, plan);
    case 3: return launch_gemv_of<T, Weight, 3>(args, plan);
    default: return launch_gemv_of<T, Weight, 4>(args, plan);
  }
}

template <class T, class Weight>
std::unique_ptr<Kernel> gemv_of_plan(const GemvPlan& plan) {
  return make_kernel([plan](const LaunchArgs& args) { launch_gemv<T, Weight>(args, plan); });
}
// One gemv kernel, and the step that it contributes to launches of several.
template <class T, class Weight>
std::unique_ptr<Kernel> gemv_of_product(const KernelSpec& spec, ProductStep product,
                                        std::unique_ptr<Kernel> elsewhere) {
  product.row_bytes = Weight::row_bytes(product.K);
  product.operands = spec.input_count();
  product.kernel = gemv_of_plan<T, Weight>;
  const DecodeStep step{spec.input_dtype(0), product};
  auto alone =
      make_kernel([step](const LaunchArgs& args) { launch_gemv<T, Weight>(args, plan_product(step, args)); });
  return as_decode_step(where_aligned(spec, std::move(alone), std::move(elsewhere)), step);
}

}  // namespace tessera::cuda
