// Sums of squares, in double: a gradient has more elements than f32 has steps. A block sums a chunk, another
// one the chunks of a tensor. The sums of many tensors, as the gradient norm wants them, are two launches in
// all.
#include <algorithm>

#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/scratch_memory.h"
#include "runtime/backends/cuda/operand_ranges.h"

namespace tessera::cuda {

namespace {

constexpr int64_t kChunk = 16384;  // elements of a partial sum
constexpr int kThreads = 256;
constexpr int kFewTensors = 64, kManyTensors = 1000;  // parameters of a kernel have 32764 bytes in all

// Tensors with consecutive chunks.
template <class T, int kMost>
struct Squares {
  const T* x[kMost];
  Wide<T>* out[kMost];
  int64_t count[kMost];
  int32_t first_chunk[kMost + 1];  // [tensors] is their number
  int32_t tensors;
  double* partial;  // [chunks]

  void add(const T* tensor, Wide<T>* sum, int64_t elements) {
    x[tensors] = tensor;
    out[tensors] = sum;
    count[tensors] = elements;
    first_chunk[tensors + 1] = first_chunk[tensors] + static_cast<int32_t>((elements + kChunk - 1) / kChunk);
    ++tensors;
  }
};

template <class T, int kMost>
__global__ void __launch_bounds__(kThreads)
    chunk_squares_kernel(const __grid_constant__ Squares<T, kMost> all) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  const auto chunk = static_cast<int32_t>(blockIdx.x);
  int low = 0, high = all.tensors;  // first_chunk[low] <= chunk < first_chunk[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (all.first_chunk[middle] <= chunk ? low : high) = middle;
  }
  const int64_t begin = (chunk - all.first_chunk[low]) * kChunk, left = all.count[low] - begin;
  const int64_t count = left < kChunk ? left : kChunk;
  const T* x = all.x[low] + begin;
  const Team<kThreads> team{static_cast<int>(threadIdx.x)};
  double sum = 0;
  const auto square = [&](Wide<T> x) { sum += static_cast<double>(x) * static_cast<double>(x); };
  int64_t single = 0;
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    single = count / kVec * kVec;
    team.template packs<kVec>(single, [&](int64_t i) {
      Wide<T> value[kVec];
      load_pack(x + i, value);
      for (int j = 0; j < kVec; ++j) square(value[j]);
    });
  }
  team.each(count - single, [&](int64_t i) { square(widen(x[single + i])); });
  sum = team.sum(sum);
  if (team.rank == 0) all.partial[chunk] = sum;
}

template <class T, int kMost>
__global__ void __launch_bounds__(kThreads)
    total_squares_kernel(const __grid_constant__ Squares<T, kMost> all) {
  const auto tensor = static_cast<int>(blockIdx.x);
  const int32_t first = all.first_chunk[tensor], chunks = all.first_chunk[tensor + 1] - first;
  const Team<kThreads> team{static_cast<int>(threadIdx.x)};
  double sum = 0;
  team.each(chunks, [&](int64_t i) { sum += all.partial[first + i]; });
  sum = team.sum(sum);
  if (team.rank == 0) *all.out[tensor] = static_cast<Wide<T>>(sum);
}

template <class T, int kMost>
void launch_squares(cudaStream_t stream, const Squares<T, kMost>& all) {
  if (const int32_t chunks = all.first_chunk[all.tensors]; chunks > 0)
    chunk_squares_kernel<T, kMost><<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(all);
  total_squares_kernel<T, kMost><<<static_cast<unsigned>(all.tensors), kThreads, 0, stream>>>(all);
}

template <class T>
class SumSquares final : public Kernel {
 public:
  explicit SumSquares(int64_t count) : count_(count) {}

  Status launch(const LaunchArgs& args) const override {
    Squares<T, 1> one{};
    one.add(args.in<T>(0), args.out<Wide<T>>(0), count_);
    one.partial = static_cast<double*>(args.workspace);
    launch_squares(args.stream, one);
    return {};
  }
  bool fuses() const override { return true; }
  double launch_share() const override { return kShareOfMany; }
  Fused fuse(std::span<const ComingLaunch> coming) const override {
    OperandRanges before;
    size_t members = 0;
    for (; members < std::min<size_t>(coming.size(), kManyTensors); ++members) {
      const auto* kernel = dynamic_cast<const SumSquares*>(coming[members].kernel);
      if (kernel == nullptr) break;
      const LaunchArgs& args = coming[members].args;
      const OperandRange x{args.inputs[0], kernel->count_ * static_cast<int64_t>(sizeof(T)), false};
      const OperandRange out{args.outputs[0], sizeof(Wide<T>), true};
      if (before.depends(x) || before.depends(out)) break;
      before.add(x);
      before.add(out);
    }
    if (members < 2) return {};
    const auto taken = coming.first(members);
    return {members <= kFewTensors ? many<kFewTensors>(taken) : many<kManyTensors>(taken),
            static_cast<int32_t>(members)};
  }

 private:
  // Partial sums of all tensors have memory of their own, since the workspaces of consecutive kernels are one
  // place. Null where the allocation fails.
  template <int kMost>
  static std::unique_ptr<Kernel> many(std::span<const ComingLaunch> members) {
    struct FusedSquares {
      Squares<T, kMost> all{};
      ScratchMemory memory;
    };
    auto fused = std::make_shared<FusedSquares>();
    for (const ComingLaunch& member : members)
      fused->all.add(member.args.in<T>(0), member.args.out<Wide<T>>(0),
                     static_cast<const SumSquares&>(*member.kernel).count_);
    const int64_t bytes =
        std::max(fused->all.first_chunk[members.size()], 1) * static_cast<int64_t>(sizeof(double));
    if (!fused->memory.allocate(bytes, "for partial sums of squares").ok()) return nullptr;
    fused->all.partial = reinterpret_cast<double*>(fused->memory.at(0));
    return make_kernel([fused](const LaunchArgs& args) { launch_squares(args.stream, fused->all); });
  }

  int64_t count_;
};

}  // namespace

Result<PreparedKernel> prepare_sum_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    const int64_t count = spec.input_elements(0), chunks = (count + kChunk - 1) / kChunk;
    if (chunks > INT32_MAX)
      return Status(StatusCode::kUnsupported,
                    format("{} elements, at most 2^31 chunks of {}", count, kChunk));
    return memory_bound(spec, std::make_unique<SumSquares<decltype(zero)>>(count),
                        chunks * static_cast<int64_t>(sizeof(double)));
  });
}

}  // namespace tessera::cuda
