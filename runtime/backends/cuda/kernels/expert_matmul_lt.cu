// Expert matmuls through cuBLASLt. Every expert has the same number of slots, so all experts are one batch.
// The device alone knows how many slots hold a token, so all slots are multiplied, and the empty ones are
// masked: their rows of y are overwritten with zeros, and sums over slots read copies with zeros there.
#include <algorithm>
#include <utility>

#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/expert_slots.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Copies rows of `cols` elements, one a slot from slot `first` on; a row without a token becomes 0.
template <class T, int kVec>
struct CopyTaken {
  const T* from;
  T* to;  // may be `from`
  int64_t cols, first;
  ExpertSlots slots;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t slot = first + row, sequence = slot / slots.S;
    const bool taken = slots.taken(sequence / slots.B, sequence % slots.B, slot % slots.S);
    if (taken && from == to) return;
    team.template packs<kVec>(cols, [&](int64_t c) {
      const int64_t at = row * cols + c;
      Pack<T, kVec> pack;
      if (taken) {
        pack = *reinterpret_cast<const Pack<T, kVec>*>(from + at);
      } else {
#pragma unroll
        for (int i = 0; i < kVec; ++i) pack.value[i] = T(0.0f);
      }
      store_whole(reinterpret_cast<Pack<T, kVec>*>(to + at), pack);
    });
  }
};

template <class T>
void launch_copy_taken(cudaStream_t stream, const ExpertSlots& slots, int64_t first, int64_t rows,
                       int64_t cols, const T* from, T* to) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if (cols % kVec == 0 && addresses % 16 == 0)
    launch_rows(stream, rows, cols / kVec, CopyTaken<T, kVec>{from, to, cols, first, slots});
  else
    launch_rows(stream, rows, cols, CopyTaken<T, 1>{from, to, cols, first, slots});
}

constexpr int64_t kStripBytes = int64_t{32} << 20;  // size of the copies, most of which stay in the L2 cache
constexpr int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

// x [E, B, S, K], w [E, K, N] or [E, N, K], load [E, B] -> y [E, B, S, N]
Result<PreparedKernel> prepare_expert_matmul_lt(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t E = dims[0], B = dims[1], S = dims[2], K = dims[3], N = spec.output_dims(0)[3];
    if (spec.input_dtype(1) != spec.input_dtype(0))
      return Status(StatusCode::kUnsupported, format("weights of {}", to_text(spec.input_dtype(1))));
    if (E == 0 || B * S == 0 || K == 0 || N == 0)
      return Status(StatusCode::kUnsupported, format("{} products of {} x {} x {}", E, B * S, N, K));
    LtShape shape{B * S, N, K, false, spec.i64("trans_w") == 1, spec.input_dtype(0), false};
    shape.batches = E;
    shape.tf32 = allows_tf32(spec);
    TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const CublasLtMatmul> product,
                         CublasLtMatmul::create(shape, LtChoices(spec).take()));
    const bool has_load = spec.input_count() == 3;
    const FactorIndex slots(spec.factor('s'));
    return lt_prepared(
        spec, make_kernel([=](const LaunchArgs& args) -> Status {
          TSR_RETURN_IF_ERROR(product->launch(
              {.a = args.inputs[0], .b = args.inputs[1], .c = args.outputs[0]}, args.workspace, args.stream));
          T* y = args.out<T>(0);
          if (has_load)
            launch_copy_taken<T>(args.stream, {B, S, slots, args.in<int32_t>(2)}, 0, E * B * S, N, y, y);
          return {};
        }),
        shape, product);
  });
}

// x [E, B, S, K], dy [E, B, S, N], load [E, B] -> dw [E, K, N], or [E, N, K] when trans_w = 1. With a load, x
// and dy are copied, some experts at a time.
Result<PreparedKernel> prepare_expert_matmul_weight_grad_lt(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t E = dims[0], B = dims[1], S = dims[2];
    // dw^T = dy^T x is the same product with the operands exchanged.
    const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
    const int64_t M = spec.input_dims(left)[3], N = spec.input_dims(right)[3];
    if (E == 0 || B * S == 0 || M == 0 || N == 0)
      return Status(StatusCode::kUnsupported, format("{} products of {} x {} x {}", E, M, N, B * S));
    const bool has_load = spec.input_count() == 3;
    const auto expert_bytes = static_cast<int64_t>(sizeof(T)) * B * S * (M + N);
    const int64_t experts = has_load ? std::min(E, std::max(int64_t{1}, kStripBytes / expert_bytes)) : E;
    const int64_t last = E % experts == 0 ? experts : E % experts;
    LtShape shape{M, N, B * S, true, false, spec.input_dtype(0), false};
    shape.batches = experts;
    shape.tf32 = allows_tf32(spec);
    LtChoices choices(spec);
    TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const CublasLtMatmul> product,
                         CublasLtMatmul::create(shape, choices.take()));
    std::shared_ptr<const CublasLtMatmul> last_product = product;
    LtShape last_shape = shape;
    if (last != experts) {
      last_shape.batches = last;
      TSR_ASSIGN_OR_RETURN(last_product, CublasLtMatmul::create(last_shape, choices.take()));
    }
    const int64_t strip_bytes = static_cast<int64_t>(sizeof(T)) * experts * B * S;
    const int64_t left_bytes = has_load ? aligned(strip_bytes * M) : 0,
                  right_bytes = has_load ? aligned(strip_bytes * N) : 0;
    const FactorIndex slots(spec.factor('s'));
    auto launch = [=](const LaunchArgs& args) -> Status {
      auto* const copies = static_cast<char*>(args.workspace);
      auto *const left_copy = reinterpret_cast<T*>(copies), *const right_copy =
                                                                reinterpret_cast<T*>(copies + left_bytes);
      for (int64_t first = 0; first < E; first += experts) {
        const bool is_last = first + experts >= E;
        const int64_t slot = first * B * S, count = (is_last ? last : experts) * B * S;
        const T *a = args.in<T>(left) + slot * M, *b = args.in<T>(right) + slot * N;
        if (has_load) {
          const ExpertSlots taken{B, S, slots, args.in<int32_t>(2)};
          launch_copy_taken(args.stream, taken, slot, count, M, a, left_copy);
          launch_copy_taken(args.stream, taken, slot, count, N, b, right_copy);
          a = left_copy;
          b = right_copy;
        }
        TSR_RETURN_IF_ERROR((is_last ? last_product : product)
                                ->launch({.a = a, .b = b, .c = args.out<T>(0) + first * M * N},
                                         copies + left_bytes + right_bytes, args.stream));
      }
      return {};
    };
    PreparedKernel prepared = lt_prepared(spec, make_kernel(launch), shape, product);
    prepared.workspace_bytes =
        left_bytes + right_bytes +
        std::max(CublasLtMatmul::workspace_bytes(shape), CublasLtMatmul::workspace_bytes(last_shape));
    prepared.flops = 2.0 * double(E) * double(M) * double(N) * double(B * S);
    if (has_load) prepared.bytes += 2.0 * double(E) * double(expert_bytes);  // written and read again
    if (last != experts) prepared.products.push_back(last_product);
    return Result<PreparedKernel>(std::move(prepared));
  });
}

}  // namespace tessera::cuda
