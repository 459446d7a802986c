#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// A block copies one row.
template <class T>
struct RowCopy {
  const T* state;
  const int32_t *from, *to;
  T* out;
  int64_t rows, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t n) const {
    const int64_t source = from[n], target = to[n];
    if (source < 0 || source >= rows || target < 0 || target >= rows) return;
    team.each(cols, [&](int64_t c) { out[target * cols + c] = state[source * cols + c]; });
  }
};

}  // namespace

// state [R, ...], from, to [N] -> state. Numbers are untrusted: rows outside the state are not copied.
Result<PreparedKernel> prepare_row_copy(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t rows = dims[0], count = spec.input_dims(1)[0];
  int64_t cols = 1;
  for (size_t i = 1; i < dims.size(); ++i) cols *= dims[i];
  const auto state_bytes = static_cast<size_t>(dtype_bytes(spec.input_dtype(0), rows * cols));
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) -> Status {
                          if (args.inputs[0] != args.outputs[0] && state_bytes > 0)
                            TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(args.outputs[0], args.inputs[0], state_bytes,
                                                                          cudaMemcpyDeviceToDevice, args.stream),
                                                          "row_copy"));
                          launch_rows(args.stream, count, cols,
                                      RowCopy<T>{args.in<T>(0), args.in<int32_t>(1), args.in<int32_t>(2), args.out<T>(0), rows, cols});
                          return {};
                        }));
  });
}

}  // namespace tessera::cuda
