#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct TakeSlot {
  const T* state;
  const int32_t* slot;
  T* out;
  int64_t slots, size;
  __device__ void operator()(int64_t i) const {
    out[i] = *slot >= 0 && *slot < slots ? state[*slot * size + i] : T{0};
  }
};

template <class T>
struct PutSlot {
  const T* value;
  const int32_t* slot;
  T* out;
  int64_t slots, size;
  __device__ void operator()(int64_t i) const {
    if (*slot >= 0 && *slot < slots) out[*slot * size + i] = value[i];
  }
};

// Elements of one slot.
int64_t slot_size(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  int64_t size = 1;
  for (size_t i = 1; i < dims.size(); ++i) size *= dims[i];
  return size;
}

}  // namespace

// state [S, ...], slot [] -> [1, ...]. `slot` is untrusted: one that is not there gives 0.
Result<PreparedKernel> prepare_take_slot(const KernelSpec& spec) {
  const int64_t slots = spec.input_dims(0)[0], size = slot_size(spec);
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, size,
                                      TakeSlot<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), slots, size});
                        }));
  });
}

// state [S, ...], value [1, ...], slot [] -> state. `slot` is untrusted: one that is not there changes nothing.
Result<PreparedKernel> prepare_put_slot(const KernelSpec& spec) {
  const int64_t slots = spec.input_dims(0)[0], size = slot_size(spec);
  const auto state_bytes = static_cast<size_t>(dtype_bytes(spec.input_dtype(0), slots * size));
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) -> Status {
          if (args.inputs[0] != args.outputs[0] && state_bytes > 0)
            TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(args.outputs[0], args.inputs[0], state_bytes,
                                                          cudaMemcpyDeviceToDevice, args.stream),
                                          "put_slot"));
          launch_each(args.stream, size,
                      PutSlot<T>{args.in<T>(1), args.in<int32_t>(2), args.out<T>(0), slots, size});
          return {};
        }));
  });
}

}  // namespace tessera::cuda
