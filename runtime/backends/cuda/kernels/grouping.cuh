// The indices 0..count-1 grouped by an id of each, ascending within a group: a counting sort whose places do
// not depend on the order in which threads run. What sums over groups stands on it (embedding gradients,
// experts).
#pragma once

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// Where group g's indices lie in `members`: [ends[g - 1], ends[g]), with ends[-1] = 0.
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

// rank[i] = how many j < i have the id of i; sizes[id] counted alongside. Compares every pair of indices: one
// pass over at most some ten thousands of them, far below the cost of what is summed.
template <class IdOf>
__global__ void rank_in_group_kernel(IdOf id_of, int64_t count, int32_t* rank, int32_t* sizes) {
  __shared__ int64_t tile[kGroupingThreads];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroupingThreads, i = first + threadIdx.x;
  const int64_t mine = i < count ? id_of(i) : -1;
  int32_t before = 0;
  for (int64_t at = 0; at <= first; at += kGroupingThreads) {
    __syncthreads();
    tile[threadIdx.x] = at + threadIdx.x < count ? id_of(at + threadIdx.x) : -1;
    __syncthreads();
    const int64_t limit = i - at < kGroupingThreads ? i - at : kGroupingThreads;
    for (int64_t j = 0; j < limit; ++j) before += tile[j] == mine;
  }
  if (i >= count) return;
  rank[i] = before;
  if (mine >= 0) atomicAdd(&sizes[mine], 1);  // whole numbers: the same sum in any order
}

// Inclusive sums in place, by one block.
static __global__ void __launch_bounds__(1024) inclusive_sum_kernel(int32_t* values, int64_t count) {
  constexpr int kThreads = 1024;
  __shared__ int32_t sums[kThreads];
  const int64_t each = (count + kThreads - 1) / kThreads;
  const int64_t begin = min(count, each * threadIdx.x), end = min(count, begin + each);
  int32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += values[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const int32_t left = static_cast<int>(threadIdx.x) >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += left;
    __syncthreads();
  }
  int32_t running = sums[threadIdx.x] - sum;
  for (int64_t i = begin; i < end; ++i) {
    running += values[i];
    values[i] = running;
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
  cudaMemsetAsync(result.ends, 0, static_cast<size_t>(groups) * sizeof(int32_t), stream);
  if (count > 0) {
    const auto blocks = static_cast<unsigned>((count + kGroupingThreads - 1) / kGroupingThreads);
    rank_in_group_kernel<<<blocks, kGroupingThreads, 0, stream>>>(id_of, count, rank, result.ends);
  }
  inclusive_sum_kernel<<<1, 1024, 0, stream>>>(result.ends, groups);
  launch_each(stream, count, PlaceMember<IdOf>{id_of, result, rank});
  return result;
}

// out[group, :] = sum of the rows of its members, ascending; 0 where it has none.
template <class T>
struct SumGroups {
  const T* rows;
  T* out;
  int64_t cols;
  Groups groups;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t group) const {
    const int32_t begin = groups.begin(group), end = groups.end(group);
    team.each(cols, [&](int64_t c) {
      Wide<T> sum = 0;
      for (int32_t i = begin; i < end; ++i) sum += widen(rows[groups.members[i] * cols + c]);
      out[group * cols + c] = narrow<T>(sum);
    });
  }
};

}  // namespace tessera::cuda
