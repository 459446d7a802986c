// Row steps of kernels with a softmax inside, in f32, vectorised. Only where `simd_supported`.
#pragma once

#include <cstdint>

namespace tessera::cpu {

// -inf for no values; NaN where there is a NaN.
float softmax_row_max(const float* x, int64_t cols);
// sum of exp(x - m); a value of -inf adds 0.
float softmax_row_sum(const float* x, int64_t cols, float m);
// x = (exp(x - m) / s - [column = label]) * dloss; 0 where the row does not count.
void softmax_row_gradient(float* x, int64_t cols, float m, float s, float dloss, int64_t label, bool counts);

}  // namespace tessera::cpu
