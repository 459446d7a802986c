// Grouping: the indices 0..count-1 grouped by the id of each, ascending within a group. A counting sort whose
// places do not depend on the order in which threads run. Sums over groups use it (embedding gradients,
// experts).
#pragma once

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// Group g's indices in `members` are [ends[g - 1], ends[g]), with ends[-1] = 0.
struct Groups {
  int32_t* ends;     // [groups]
  int32_t* members;  // [count]

  static int64_t workspace_bytes(int64_t groups, int64_t count) {
    return (groups + 2 * count) * static_cast<int64_t>(sizeof(int32_t));
  }
  __device__ int32_t begin(int64_t group) const { return group == 0 ? 0 : ends[group - 1]; }
  __device__ int32_t end(int64_t group) const { return ends[group]; }
};

inline constexpr int kGroupingThreads = 256;

// rank[i] += number of j < i of a span with the id of i; sizes[id] is counted alongside. Whole numbers: the
// same sum in any order. Every pair of indices is compared: 32,768 ids are 540 million pairs, at 3.6
// instructions each some 65 us of an H100. Spans have blocks of their own, since alone the block of the last
// indices would take twice that.
template <class IdOf>
__global__ void __launch_bounds__(kGroupingThreads)
    rank_in_group_kernel(IdOf id_of, int64_t count, int64_t span, int32_t* rank, int32_t* sizes) {
  __shared__ __align__(16) int32_t tile[kGroupingThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroupingThreads, i = first + thread;
  const int64_t begin = blockIdx.y * span;
  if (begin > first) return;
  const auto id_at = [&](int64_t at) { return at < count ? static_cast<int32_t>(id_of(at)) : -1; };
  const int32_t mine = id_at(i);
  int32_t before = 0;
  for (int64_t at = begin; at < begin + span && at <= first; at += kGroupingThreads) {
    __syncthreads();
    tile[thread] = id_at(at + thread);
    __syncthreads();
    if (at < first) {
#pragma unroll 16
      for (int j = 0; j < kGroupingThreads; ++j) before += tile[j] == mine;
    } else {
      for (int j = 0; j < thread; ++j) before += tile[j] == mine;
    }
  }
  if (mine < 0) return;
  if (before > 0) atomicAdd(&rank[i], before);
  if (begin == 0) atomicAdd(&sizes[mine], 1);
}

// Inclusive sums in place, by one block. A warp adds up its part, then goes through it again with the sums of
// the parts before it: 128 neighbours at a time, so that its loads are whole lines.
static __global__ void __launch_bounds__(1024) inclusive_sum_kernel(int32_t* values, int64_t count) {
  constexpr int kWarps = 32, kOwn = 4, kTile = 32 * kOwn;
  __shared__ int32_t sums[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t tiles = (count + kTile - 1) / kTile, part = (tiles + kWarps - 1) / kWarps * kTile;
  const int64_t begin = min(count, warp * part), end = min(count, begin + part);
  int32_t sum = 0;
#pragma unroll 8
  for (int64_t i = begin + lane; i < end; i += 32) sum += values[i];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  for (int w = 0; w < warp; ++w) before += sums[w];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t first = tile + lane * kOwn;
    int32_t own[kOwn], up_to = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) up_to = own[i] = up_to + (first + i < end ? values[first + i] : 0);
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int32_t left = __shfl_up_sync(0xffffffffu, up_to, lanes);
      if (lane >= lanes) up_to += left;
    }
    const int32_t running = before + up_to - own[kOwn - 1];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (first + i < end) values[first + i] = running + own[i];
    before += __shfl_sync(0xffffffffu, up_to, 31);
  }
}

template <class IdOf>
struct PlaceMember {
  IdOf id_of;
  Groups groups;
  const int32_t* rank;
  __device__ void operator()(int64_t i) const {
    const int64_t id = id_of(i);
    if (id >= 0) groups.members[groups.begin(id) + rank[i]] = static_cast<int32_t>(i);
  }
};

// id_of(i) is the group of i, or -1 for none. `workspace` holds Groups::workspace_bytes.
template <class IdOf>
Groups launch_grouping(cudaStream_t stream, IdOf id_of, int64_t groups, int64_t count, void* workspace) {
  Groups result{static_cast<int32_t*>(workspace), static_cast<int32_t*>(workspace) + groups};
  int32_t* rank = result.members + count;
  if (groups <= 0) return result;
  cudaMemsetAsync(workspace, 0, static_cast<size_t>(Groups::workspace_bytes(groups, count)), stream);
  if (count > 0) {
    constexpr int64_t kLeastSpan = 4096, kMostSpans = 64;
    const int64_t blocks = (count + kGroupingThreads - 1) / kGroupingThreads;
    int64_t span = (blocks + kMostSpans - 1) / kMostSpans * kGroupingThreads;
    if (span < kLeastSpan) span = kLeastSpan;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>((count + span - 1) / span));
    rank_in_group_kernel<<<grid, kGroupingThreads, 0, stream>>>(id_of, count, span, rank, result.ends);
  }
  inclusive_sum_kernel<<<1, 1024, 0, stream>>>(result.ends, groups);
  launch_each(stream, count, PlaceMember<IdOf>{id_of, result, rank});
  return result;
}

// out[group, :] = sum of the rows of its members, ascending; 0 where it has none.
template <class T, int kVec>
struct SumGroups {
  const T* rows;
  T* out;
  int64_t cols;
  Groups groups;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t group) const {
    const int32_t begin = groups.begin(group), end = groups.end(group);
    team.template packs<kVec>(cols, [&](int64_t c) {
      Wide<T> sum[kVec] = {};
#pragma unroll 8
      for (int32_t i = begin; i < end; ++i) {
        Wide<T> addend[kVec];
        load_pack(rows + groups.members[i] * cols + c, addend);
#pragma unroll
        for (int v = 0; v < kVec; ++v) sum[v] += addend[v];
      }
      store_pack(out + group * cols + c, sum);
    });
  }
};

// rows [count, cols] -> out [groups, cols]; 16 bytes at a time where rows and addresses allow it. A block a
// group: its rows come one after the other, whole ones at once.
template <class T>
void launch_group_sums(cudaStream_t stream, const T* rows, T* out, int64_t groups, int64_t cols,
                       const Groups& members) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  if (cols % kVec == 0 && (reinterpret_cast<uintptr_t>(rows) | reinterpret_cast<uintptr_t>(out)) % 16 == 0)
    launch_teams<128>(stream, groups, SumGroups<T, kVec>{rows, out, cols, members});
  else
    launch_rows(stream, groups, cols, SumGroups<T, 1>{rows, out, cols, members});
}

}  // namespace tessera::cuda
