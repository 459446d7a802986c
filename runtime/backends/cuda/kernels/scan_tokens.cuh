// WholeTokens, StepTokens: the tokens that a scan goes through, of a sequence or of a step of many sequences.
#pragma once

#include "runtime/backends/cuda/kernels/row_tokens.cuh"

namespace tessera::cuda {

// The tokens of a sequence, each segment from a state of zeros.
template <class W>
struct WholeTokens {
  const int32_t* segments;  // may be null
  int64_t T;
  __device__ int64_t count(int64_t) const { return T; }
  __device__ int64_t token(int64_t sequence, int64_t i) const { return sequence * T + i; }
  __device__ bool starts(int64_t token) const {
    return token % T == 0 || (segments != nullptr && segments[token] != segments[token - 1]);
  }
  __device__ W* state(int64_t) const { return nullptr; }
};

// The tokens of a step that continue a row of state.
template <class W>
struct StepTokens {
  RowTokens rows;
  const int32_t* position;
  W* states;
  int64_t row_size;
  __device__ int64_t count(int64_t row) const { return rows.count[row]; }
  __device__ int64_t token(int64_t row, int64_t i) const { return rows.list[row * rows.tokens + i]; }
  __device__ bool starts(int64_t token) const { return position[token] == 0; }
  __device__ W* state(int64_t row) const { return states + row * row_size; }
};

}  // namespace tessera::cuda
