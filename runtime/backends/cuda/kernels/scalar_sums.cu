// Additions of one element. A chain, in which each adds to the last one's result (the square of the gradient
// norm, parameter by parameter), is one launch instead of one a parameter.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/operand_ranges.h"

namespace tessera::cuda {

namespace {

constexpr int kMostAddends = 1024;

template <class T>
struct Chain {
  const T* addend[kMostAddends];  // the first is the initial value
  T* out;
  int32_t addends;
};

struct PlainAdd : NoSetUp {
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    y[0] = x[0] + x[1];
  }
};

// All threads fetch, one adds: in order, rounding as the separate additions do.
template <class T>
__global__ void __launch_bounds__(256) chain_kernel(const __grid_constant__ Chain<T> chain) {
  __shared__ T value[kMostAddends];
  for (int i = static_cast<int>(threadIdx.x); i < chain.addends; i += static_cast<int>(blockDim.x))
    value[i] = *chain.addend[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  T sum = value[0];
  for (int i = 1; i < chain.addends; ++i) sum = narrow<T>(widen(sum) + widen(value[i]));
  *chain.out = sum;
}

template <class T>
class ScalarAdd final : public Kernel {
 public:
  Status launch(const LaunchArgs& args) const override {
    launch_map<T, 2, 1>(args.stream, 1, PlainAdd{}, {{args.inputs[0], args.inputs[1]}, {args.outputs[0]}});
    return {};
  }
  bool fuses() const override { return true; }
  double launch_share() const override { return kShareOfMany; }
  // The sum stays in one place, which overlaps no addend.
  Fused fuse(std::span<const ComingLaunch> coming) const override {
    auto chain = std::make_shared<Chain<T>>();
    chain->out = coming[0].args.out<T>(0);
    OperandRanges sum;
    sum.add(OperandRange{chain->out, sizeof(T), true});
    int32_t taken = 0;
    for (const ComingLaunch& next : coming) {
      const T *left = next.args.in<T>(0), *right = next.args.in<T>(1);
      if (taken > 0 && left != chain->out) std::swap(left, right);
      if (dynamic_cast<const ScalarAdd*>(next.kernel) == nullptr || chain->addends == kMostAddends ||
          next.args.out<T>(0) != chain->out || (taken > 0 && left != chain->out) ||
          (taken > 0 && sum.depends(OperandRange{right, sizeof(T), false})))
        break;
      if (taken == 0) chain->addend[chain->addends++] = left;
      chain->addend[chain->addends++] = right;
      ++taken;
    }
    if (taken < 2) return {};
    return {
        make_kernel([chain](const LaunchArgs& args) { chain_kernel<T><<<1, 256, 0, args.stream>>>(*chain); }),
        taken};
  }
};

}  // namespace

Result<PreparedKernel> prepare_scalar_add(const KernelSpec& spec) {
  if (spec.output_elements(0) != 1)
    return Status(StatusCode::kUnsupported, format("an addition of {} elements", spec.output_elements(0)));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    return memory_bound(spec, std::make_unique<ScalarAdd<decltype(zero)>>());
  });
}

}  // namespace tessera::cuda
