// What check_packs.py looks at: rows of 16-bit elements, which kernels load and store 16 bytes at a time, in
// loops that the compiler unrolls.
#include "runtime/backends/cuda/kernels/norm_rows.cuh"

namespace tessera::cuda {

template <template <class, int> class Norm>
using AddedNorm = AddThenNorm<__nv_bfloat16, 8, Norm<__nv_bfloat16, 8>>;
template __global__ void rows_kernel<32>(AddedNorm<RmsNormRow>, int64_t);
template __global__ void rows_kernel<256>(AddedNorm<LayerNormRow>, int64_t);

}  // namespace tessera::cuda
