// expert_matmul over weights in 16 bits or of block types: plain kernels. An expert's weight is decoded to f32, a
// strip at a time.
#include <algorithm>

#include "runtime/backends/cuda/kernels/block_weight.cuh"
#include "runtime/backends/cuda/kernels/expert_slots.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// y[m, n] of a strip of `width` results n of one expert; number (n, k) of the strip is at n * n_step + k * k_step.
// k ascending.
template <class T>
struct ExpertStrip {
  const T* x;          // of this expert
  const float* strip;
  T* y;                // of this expert, the first of these results
  ExpertSlots slots;
  int64_t expert, width, N, K, n_step, k_step;
  __device__ void operator()(int64_t i) const {
    const int64_t m = i / width, n = i % width;
    Wide<T> sum = 0;
    if (slots.taken(expert, m / slots.S, m % slots.S))
      for (int64_t k = 0; k < K; ++k)
        sum += widen(x[m * K + k]) * static_cast<Wide<T>>(strip[n * n_step + k * k_step]);
    y[m * N + n] = narrow<T>(sum);
  }
};

constexpr int64_t kStripFloats = int64_t{8} << 20;

}  // namespace

// x [E, B, S, K], w [E, N, K] or [E, K, N], load [E, B] -> y [E, B, S, N]
Result<PreparedKernel> prepare_expert_matmul_stored(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t E = dims[0], B = dims[1], S = dims[2], K = dims[3], N = spec.output_dims(0)[3], M = B * S;
  const bool trans = spec.i64("trans_w") == 1, has_load = spec.input_count() == 3;
  if (spec.input_dtype(0) == spec.input_dtype(1))
    return Status(StatusCode::kUnsupported, "this kernel decodes weights of another type than x");
  if (spec.string("activations") != "f32")
    return Status(StatusCode::kUnsupported, "this kernel multiplies activations as they are");
  const FactorIndex slots(spec.factor('s'));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return dispatch_stored_weight(spec.input_dtype(1), [&](auto block) -> Result<PreparedKernel> {
      using Block = decltype(block);
      // Rows of the weight and blocks of a row; a strip takes whole rows, or blocks of all rows.
      const int64_t rows = trans ? N : K, blocks = (trans ? K : N) / Block::kElements;
      const int64_t parts = trans ? rows : blocks, part_floats = trans ? K : rows * Block::kElements;
      const int64_t most = std::clamp<int64_t>(kStripFloats / std::max<int64_t>(part_floats, 1), 1,
                                               std::max<int64_t>(parts, 1));
      auto launch = [=](const LaunchArgs& args) {
        auto* strip = static_cast<float*>(args.workspace);
        const ExpertSlots taken{B, S, slots, has_load ? args.in<int32_t>(2) : nullptr};
        const int64_t row_bytes = blocks * static_cast<int64_t>(sizeof(Block));
        for (int64_t e = 0; e < E; ++e)
          for (int64_t first = 0; first < parts; first += most) {
            const int64_t count = std::min(most, parts - first);
            const uint8_t* w = args.in<uint8_t>(1) + (e * rows + (trans ? first : 0)) * row_bytes;
            const int64_t decoded = trans ? blocks : count, n0 = trans ? first : first * Block::kElements;
            const int64_t width = trans ? count : count * Block::kElements;
            launch_each(args.stream, (trans ? count : rows) * decoded,
                        DecodeStrip<Block>{w, strip, blocks, trans ? 0 : first, decoded});
            launch_each(args.stream, M * width,
                        ExpertStrip<T>{args.in<T>(0) + e * M * K, strip, args.out<T>(0) + e * M * N + n0, taken,
                                       e, width, N, K, trans ? K : 1, trans ? 1 : width});
          }
      };
      PreparedKernel prepared = memory_bound(spec, make_kernel(launch));
      prepared.flops = 2.0 * double(E) * double(M) * double(N) * double(K);
      prepared.efficiency = 0.01;
      prepared.workspace_bytes = 4 * most * part_floats;
      return Result<PreparedKernel>(std::move(prepared));
    });
  });
}

}  // namespace tessera::cuda
