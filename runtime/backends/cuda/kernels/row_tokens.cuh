// RowTokens: the tokens of a step by the row of state that they continue, in their order.
#pragma once

#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

struct RowTokens {
  const int32_t* row;  // [tokens]; those outside [0, rows) belong to no sequence
  int32_t *count, *list;  // [rows], [rows, tokens]
  int64_t rows, tokens;

  static int64_t bytes(int64_t rows, int64_t tokens) {
    return rows * (tokens + 1) * static_cast<int64_t>(sizeof(int32_t));
  }
  RowTokens(int64_t rows, int64_t tokens, const int32_t* row, void* workspace)
      : row(row), count(static_cast<int32_t*>(workspace)), list(count + rows), rows(rows), tokens(tokens) {}

  __device__ bool is_padding(int64_t token) const { return row[token] < 0 || row[token] >= rows; }

  // Lists the tokens of row r.
  __device__ void operator()(const Team<32>& team, int64_t r) const {
    int32_t found = 0;
    for (int64_t first = 0; first < tokens; first += 32) {
      const int64_t token = first + team.rank;
      const unsigned all = __ballot_sync(0xffffffffu, token < tokens && row[token] == r);
      if ((all >> team.rank & 1) != 0)
        list[r * tokens + found + __popc(all & ((1u << team.rank) - 1))] = static_cast<int32_t>(token);
      found += __popc(all);
    }
    if (team.rank == 0) count[r] = found;
  }
};

// y [tokens, width] = 0 for tokens of no row.
template <class T>
struct ClearPadding {
  RowTokens tokens;
  T* y;
  int64_t width;
  __device__ void operator()(int64_t i) const {
    if (tokens.is_padding(i / width)) y[i] = T();
  }
};

// Makes the lists, clears y of padding, and copies the state where it is not updated in place.
template <class T>
Status begin_rows(const LaunchArgs& args, const RowTokens& tokens, T* y, int64_t width, int64_t state_bytes) {
  if (args.inputs[0] != args.outputs[1] && state_bytes > 0)
    TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(args.outputs[1], args.inputs[0], static_cast<size_t>(state_bytes),
                                                  cudaMemcpyDeviceToDevice, args.stream),
                                  "cudaMemcpyAsync"));
  launch_teams<32>(args.stream, tokens.rows, tokens);
  launch_each(args.stream, tokens.tokens * width, ClearPadding<T>{tokens, y, width});
  return {};
}

}  // namespace tessera::cuda
