// Rows of rms_norm and layer_norm, by a team of threads, and of a sum and its norm. Statistics may be null:
// not stored.
#pragma once

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

template <class T, int kVec>
struct RmsNormRow {
  using W = Wide<T>;
  const T *x, *w;
  T* y;
  W* rstd;
  int64_t cols;
  W eps, inverse;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W squares = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) squares += v[i] * v[i];
    });
    const W scale = W(1) / sqrt(team.sum(squares) * inverse + eps);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec], weight[kVec];
      load_pack(x + at + c, v);
      load_pack(w + c, weight);
      for (int i = 0; i < kVec; ++i) v[i] *= scale * weight[i];
      store_pack(y + at + c, v);
    });
    if (team.rank == 0 && rstd != nullptr) rstd[row] = scale;
  }
};

template <class T, int kVec>
struct LayerNormRow {
  using W = Wide<T>;
  const T *x, *w, *b;
  T* y;
  W *mean, *rstd;
  int64_t cols;
  W eps, inverse;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const T* xr = x + row * cols;
    T* yr = y + row * cols;
    W sum = 0, squares = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(xr + c, v);
      for (int i = 0; i < kVec; ++i) sum += v[i];
    });
    const W center = team.sum(sum) * inverse;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(xr + c, v);
      for (int i = 0; i < kVec; ++i) squares += (v[i] - center) * (v[i] - center);
    });
    const W scale = W(1) / sqrt(team.sum(squares) * inverse + eps);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec], weight[kVec], bias[kVec];
      load_pack(xr + c, v);
      load_pack(w + c, weight);
      load_pack(b + c, bias);
      for (int i = 0; i < kVec; ++i) v[i] = (v[i] - center) * scale * weight[i] + bias[i];
      store_pack(yr + c, v);
    });
    if (team.rank == 0) {
      if (mean != nullptr) mean[row] = center;
      if (rstd != nullptr) rstd[row] = scale;
    }
  }
};

// sum = x + addend, rounded, and its norm. A thread reads only elements of `sum` that it has written itself
// and that are in the cache. The same bits as the two kernels.
template <class T, int kVec, class Norm>
struct AddThenNorm {
  const T *x, *addend;
  T* sum;     // may be x
  Norm norm;  // of sum
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * norm.cols;
    team.template packs<kVec>(norm.cols, [&](int64_t c) {
      Wide<T> v[kVec], other[kVec];
      load_pack(x + at + c, v);
      load_pack(addend + at + c, other);
      for (int i = 0; i < kVec; ++i) v[i] += other[i];
      store_pack(sum + at + c, v);
    });
    norm(team, row);
  }
};

}  // namespace tessera::cuda
