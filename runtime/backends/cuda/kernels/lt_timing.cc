// Times the algorithms that cuBLASLt's heuristic proposes for a matmul, on operands of its own.
#include <algorithm>
#include <cmath>

#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/noise.h"
#include "runtime/backends/cuda/kernels/scratch_memory.h"

namespace tessera::cuda {

namespace {

// A later proposal wins only if it takes at most this share of the first one's
// time. Smaller differences are noise, and without timings the first is used.
constexpr double kClearly = 0.97;
constexpr int kRounds = 5;              // of all, in turn, since clocks drift; the median counts
constexpr double kBatchSeconds = 1e-3;  // launches between two events, so that issuing them hardly counts
constexpr int kMostLaunches = 50;

// Two events on a stream of their own.
class Stopwatch {
 public:
  ~Stopwatch() {
    for (cudaEvent_t event : {begin_, end_})
      if (event != nullptr) (void)cudaEventDestroy(event);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Status create() {
    TSR_RETURN_IF_ERROR(from_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDefault), "an event"));
    return from_cuda(cudaEventCreateWithFlags(&end_, cudaEventDefault), "an event");
  }
  cudaStream_t stream() const { return stream_; }

  // Seconds of each of `count` calls of `launch`; waits for them.
  template <class Launch>
  Result<double> time(int count, Launch launch) const {
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventRecord(begin_, stream_), "an event"));
    for (int i = 0; i < count; ++i) TSR_RETURN_IF_ERROR(launch());
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventRecord(end_, stream_), "an event"));
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventSynchronize(end_), "timing a product"));
    float milliseconds = 0;
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing a product"));
    return static_cast<double>(milliseconds) * 1e-3 / count;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct Timed {
  size_t place;
  std::vector<double> seconds;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Result<std::string> CublasLtMatmul::fastest() const {
  TSR_ASSIGN_OR_RETURN(const auto proposed, proposals(alignment(), kProposals));
  const int64_t a_count = shape_.batches * shape_.a_elements(),
                b_count = shape_.batches * shape_.b_elements(),
                c_count = shape_.batches * shape_.c_elements();
  const bool has_pre = shape_.has_pre || shape_.has_gelu_grad;
  const int64_t bias_count = shape_.has_bias ? shape_.N : 0, pre_count = has_pre ? shape_.M * shape_.N : 0;
  const DType a_type = shape_.dtype, b_type = shape_.scaled ? shape_.b_dtype : shape_.dtype,
              bias_type = shape_.scaled ? shape_.c_dtype : shape_.dtype;
  const int64_t scale_count = shape_.scaled ? 2 : 0;
  int64_t bytes = 0;
  const auto place = [&](int64_t size) {
    const int64_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  };
  const int64_t a_at = place(dtype_bytes(a_type, a_count)), b_at = place(dtype_bytes(b_type, b_count)),
                c_at = place(dtype_bytes(c_type(), c_count)),
                bias_at = place(dtype_bytes(bias_type, bias_count)),
                pre_at = place(dtype_bytes(shape_.dtype, pre_count)),
                scales_at = place(dtype_bytes(DType::kF32, scale_count)),
                workspace_at = place(workspace_bytes(shape_));
  // Declared before the stream, so that issued work has ended when it is freed.
  ScratchMemory memory;
  TSR_RETURN_IF_ERROR(memory.allocate(bytes, "to time a product with"));
  Stopwatch watch;
  TSR_RETURN_IF_ERROR(watch.create());
  fill_with_noise(a_type, memory.at(a_at), a_count, 1, watch.stream());
  fill_with_noise(b_type, memory.at(b_at), b_count, 2, watch.stream());
  fill_with_noise(c_type(), memory.at(c_at), c_count, 3, watch.stream());
  fill_with_noise(bias_type, memory.at(bias_at), bias_count, 4, watch.stream());
  fill_with_noise(shape_.dtype, memory.at(pre_at), pre_count, 5, watch.stream());
  fill_with_noise(DType::kF32, memory.at(scales_at), scale_count, 6, watch.stream());
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetLastError(), "filling operands"));
  const auto* scales = shape_.scaled ? reinterpret_cast<const float*>(memory.at(scales_at)) : nullptr;

  const auto launch = [&](size_t i) {
    return launch_as(proposed[i],
                     {.a = memory.at(a_at),
                      .b = memory.at(b_at),
                      .c = memory.at(c_at),
                      .bias = shape_.has_bias ? memory.at(bias_at) : nullptr,
                      .pre = has_pre ? memory.at(pre_at) : nullptr,
                      .addend = shape_.adds ? memory.at(c_at) : nullptr,
                      .a_scale = scales,
                      .b_scale = scales == nullptr ? nullptr : scales + 1},
                     memory.at(workspace_at), watch.stream());
  };
  std::vector<Timed> timed;
  double shortest = 0;
  std::string refusals;
  for (size_t i = 0; i < proposed.size(); ++i) {
    // A proposed algorithm may still be declined when it is launched.
    if (const Status status = launch(i); !status.ok()) {
      (void)cudaGetLastError();
      refusals += format("{}{}", refusals.empty() ? "" : "; ", status.message());
      continue;
    }
    TSR_ASSIGN_OR_RETURN(const double seconds, watch.time(1, [&] { return launch(i); }));
    shortest = timed.empty() ? seconds : std::min(shortest, seconds);
    timed.push_back({i, {}});
  }
  if (timed.empty())
    return Status(StatusCode::kUnsupported, format("no algorithm runs for {}: {}", text(), refusals));
  const int count = static_cast<int>(
      std::clamp(std::ceil(kBatchSeconds / std::max(shortest, 1e-7)), 1.0, double{kMostLaunches}));
  for (int round = 0; round < kRounds; ++round)
    for (Timed& it : timed) {
      TSR_ASSIGN_OR_RETURN(const double seconds, watch.time(count, [&] { return launch(it.place); }));
      it.seconds.push_back(seconds);
    }
  const Timed* best = &timed[0];
  for (const Timed& it : timed)
    if (median(it.seconds) <= kClearly * median(best->seconds)) best = &it;
  return algorithm_tag(best->place, proposed[best->place]);
}

}  // namespace tessera::cuda
