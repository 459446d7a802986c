// Attention through cuDNN's fused kernels, for f16 and bf16 where no mask depends on a shard's position. The
// log of the sum crosses between the op's layout and the only one that cuDNN's gradient takes, [B, H, T].
#include "runtime/backends/cuda/kernels/attention_dnn.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/swap_rows.h"
#include "runtime/backends/cuda/notes.h"

namespace tessera::cuda {

namespace {

constexpr int64_t kUnit = 256;  // alignment of the library's workspace
// Largest buffer of the gradient's scores, enough for 2048 tokens with 32 heads. Larger batches are split.
constexpr int64_t kMostGradientBytes = int64_t{512} << 20;

int64_t rounded(int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// Handle: one for all streams of a device; the issuing thread sets the stream and holds the mutex. Never
// destroyed, as the library is never closed.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};

Result<Handle*> make_handle(const Dnn& dnn) {
  auto made = std::make_unique<Handle>();
  TSR_RETURN_IF_ERROR(dnn.status(dnn.create(&made->handle), "start on this device"));
  return made.release();
}

// The handle of the current device.
Result<Handle*> handle_of(const Dnn& dnn, int device) {
  static std::mutex mutex;
  static std::map<int, Result<Handle*>> handles;
  const std::lock_guard lock(mutex);
  auto found = handles.find(device);
  if (found == handles.end()) found = handles.emplace(device, make_handle(dnn)).first;
  return found->second;
}

// Refuses shapes that the library does not support, or not deterministically, on this device.
Status check_supported(const DnnAttention& n, int major) {
  const auto refuse = [](std::string why) { return Status(StatusCode::kUnsupported, std::move(why)); };
  if (n.dtype != DType::kF16 && n.dtype != DType::kBF16)
    return refuse("cuDNN's attention takes f16 and bf16");
  if (major < 8) return refuse(format("compute capability {}.x: fused attention begins with 8.0", major));
  if (n.B < 1 || n.H < 1 || n.KV < 1) return refuse("nothing to compute");
  // With one query, decoding's mask is wrong for grouped heads; with one key there is no gradient.
  if (n.T < 2 || n.S < 2) return refuse(format("{} queries and {} keys: at least 2 of each", n.T, n.S));
  if (n.is_gradient && major > 9)
    return refuse(format("compute capability {}.x: no gradient that sums in one order", major));
  const int64_t most = major == 9 || (major == 8 && !n.is_gradient) ? 256 : 128;
  if (n.D < 8 || n.D > most || n.D % 8 != 0)
    return refuse(format("heads of {}: multiples of 8 up to {}", n.D, most));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (n.T > kMost || n.S > kMost || n.B * n.H * n.D > kMost / n.T || n.B * n.KV * n.D > kMost / n.S)
    return refuse("more elements than 32 bits count");
  return {};
}

class Planned final : public AttentionDnn {
 public:
  // `part`: number of sequences at a time, a divisor of the batch.
  Planned(const DnnAttention& shape, int64_t part, Handle& handle, DnnPlan plan)
      : shape_(shape), part_(part), handle_(handle), plan_(std::move(plan)) {}

  Status compile() override {
    std::call_once(compiled_, [&] {
      const std::lock_guard lock(handle_.mutex);
      compiled_status_ = plan_.compile();
    });
    return compiled_status_;
  }
  const DnnEngine& engine() const override { return plan_.engine(); }
  int64_t workspace_bytes() const override {
    return kUnit + (shape_.is_gradient ? 2 : 1) * rounded(rows_bytes()) + plan_.workspace_bytes();
  }

  Status launch(const LaunchArgs& args, float scale) const override {
    float masked = -std::numeric_limits<float>::infinity(), one = 1;
    char* const workspace =
        reinterpret_cast<char*>(rounded(static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.workspace))));
    auto* const rows = reinterpret_cast<float*>(workspace);
    for (int64_t first = 0; first < shape_.B; first += part_) {
      // The start of this part of an operand; the library never writes to its inputs.
      const auto at = [&](const void* base, int64_t row_elements) {
        return const_cast<char*>(static_cast<const char*>(base)) +
               dtype_bytes(shape_.dtype, first * row_elements);
      };
      const int64_t query = shape_.T * shape_.H * shape_.D, key = shape_.S * shape_.KV * shape_.D,
                    row = first * shape_.T * shape_.H;
      std::vector<DnnPlan::Binding> bindings = {{kDnnScale, &scale}, {kDnnLse, rows}};
      if (shape_.causal) bindings.push_back({kDnnMasked, &masked});
      const int q = shape_.is_gradient ? 1 : 0;
      bindings.push_back({kDnnQ, at(args.inputs[q], query)});
      bindings.push_back({kDnnK, at(args.inputs[q + 1], key)});
      bindings.push_back({kDnnV, at(args.inputs[q + 2], key)});
      if (shape_.is_gradient) {
        bindings.push_back({kDnnOne, &one});
        bindings.push_back({kDnnDout, at(args.inputs[0], query)});
        bindings.push_back({kDnnOut, at(args.inputs[4], query)});
        bindings.push_back({kDnnDelta, workspace + rounded(rows_bytes())});
        bindings.push_back({kDnnDq, at(args.outputs[0], query)});
        bindings.push_back({kDnnDk, at(args.outputs[1], key)});
        bindings.push_back({kDnnDv, at(args.outputs[2], key)});
        swap_rows(args.in<float>(5) + row, rows, part_, shape_.T, shape_.H, args.stream);
      } else {
        bindings.push_back({kDnnOut, at(args.outputs[0], query)});
      }
      TSR_RETURN_IF_ERROR(
          issue(bindings, workspace + (shape_.is_gradient ? 2 : 1) * rounded(rows_bytes()), args.stream));
      if (!shape_.is_gradient)
        swap_rows(rows, args.out<float>(1) + row, part_, shape_.H, shape_.T, args.stream);
    }
    return {};
  }

 private:
  int64_t rows_bytes() const { return part_ * shape_.H * shape_.T * static_cast<int64_t>(sizeof(float)); }
  Status issue(std::span<const DnnPlan::Binding> bindings, void* workspace, cudaStream_t stream) const {
    TSR_ASSIGN_OR_RETURN(const Dnn* const dnn, cuda::dnn());
    const std::lock_guard lock(handle_.mutex);
    Status status = dnn->status(dnn->set_stream(handle_.handle, stream), "go to a stream");
    if (status.ok()) status = plan_.execute(handle_.handle, bindings, workspace);
    // Declining is no longer possible.
    return status.ok() ? status : Status(StatusCode::kInternal, std::string(status.message()));
  }

  DnnAttention shape_;
  int64_t part_;
  Handle& handle_;
  DnnPlan plan_;
  std::once_flag compiled_;
  Status compiled_status_;
};

Result<std::shared_ptr<AttentionDnn>> plan_attention(const Dnn& dnn, const DnnAttention& shape,
                                                     Handle& handle, const DnnEngine* wanted) {
  const auto plan_for = [&](int64_t part) {
    DnnAttention piece = shape;
    piece.B = part;
    const DnnDevice device{handle.handle, nullptr};
    const std::lock_guard lock(handle.mutex);
    return wanted == nullptr ? DnnPlan::propose(device, attention_dnn_graph(dnn, piece))
                             : DnnPlan::with_engine(device, attention_dnn_graph(dnn, piece), *wanted);
  };
  int64_t part = shape.B;
  Result<DnnPlan> plan = plan_for(part);
  if (!plan.ok()) return plan.status();
  if (shape.is_gradient && plan->workspace_bytes() > kMostGradientBytes) {
    const int64_t sequence = (plan->workspace_bytes() + shape.B - 1) / shape.B;
    do --part;
    while (part > 0 && (shape.B % part != 0 || part * sequence > kMostGradientBytes));
    if (part == 0)
      return Status(StatusCode::kUnsupported,
                    format("{} bytes of scores a sequence, at most {}", sequence, kMostGradientBytes));
    plan = plan_for(part);
    if (!plan.ok()) return plan.status();
  }
  return std::shared_ptr<AttentionDnn>(
      std::make_shared<Planned>(shape, part, handle, std::move(plan).value()));
}

Result<PreparedKernel> prepare(const KernelSpec& spec, bool is_gradient, PrepareFn own, PrepareFn plain) {
  const auto query = spec.input_dims(is_gradient ? 1 : 0), key = spec.input_dims(is_gradient ? 2 : 1);
  const auto refuse = [](std::string_view what) {
    return Status(StatusCode::kUnsupported, format("{}: the plain kernel has them", what));
  };
  if (spec.i64("window") > 0 || spec.f64("softcap") > 0) return refuse("windows and capped scores");
  if (spec.input_dims(is_gradient ? 3 : 2)[3] != query[3]) return refuse("values of another width than keys");
  if (spec.input_count() != (is_gradient ? 6 : 3)) return refuse("segments or the gradient of lse");
  const DnnAttention shape{spec.input_dtype(0),     query[0],   query[1], query[2], key[1], key[2], query[3],
                           spec.i64("causal") == 1, is_gradient};
  if (shape.causal)
    for (const char name : {'t', 's'})
      if (const tsr_abi_factor& factor = spec.factor(name); factor.begin[0] != 0 || factor.range_count > 1)
        return Status(StatusCode::kUnsupported, "a causal mask of a shard that does not begin at 0");
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<AttentionDnn> dnn, attention_dnn(shape, nullptr));
  // For views at odd addresses, and where the library turns out not to do what it should.
  Result<PreparedKernel> best = own(spec);
  if (!best.ok()) best = plain(spec);
  if (!best.ok()) return best.status();
  const std::shared_ptr<const Kernel> other = std::move(best->kernel);
  const auto is_sound = std::make_shared<std::atomic<bool>>(false);
  const double given = spec.f64("scale");
  const auto scale = static_cast<float>(given != 0 ? given : 1 / std::sqrt(static_cast<double>(shape.D)));
  PreparedKernel prepared =
      memory_bound(spec,
                   where_aligned(spec, make_kernel([=](const LaunchArgs& args) {
                                   return is_sound->load(std::memory_order_relaxed) ? dnn->launch(args, scale)
                                                                                    : other->launch(args);
                                 }),
                                 make_kernel([=](const LaunchArgs& args) { return other->launch(args); })),
                   std::max(dnn->workspace_bytes(), best->workspace_bytes));
  // A question compiles and runs nothing: what the library does is seen before the first launch.
  prepared.compile = [=]() -> Status {
    Status sound = check_attention_dnn(shape, dnn->engine());
    if (sound.ok() && !(sound = dnn->compile()).ok())
      note(format("cuDNN is not used for attention: {}: {}", dnn->engine().text(), sound.message()));
    if (sound.code() == StatusCode::kOutOfMemory) return sound;
    is_sound->store(sound.ok(), std::memory_order_relaxed);
    return {};
  };
  // Two products, or five; half of each where the mask leaves half.
  prepared.flops = (is_gradient ? 5.0 : 2.0) * (shape.causal ? 1.0 : 2.0) *
                   double(shape.B * shape.T * shape.H) * double(shape.S) * double(shape.D);
  prepared.efficiency = is_gradient ? 0.45 : 0.6;  // of dense products
  return prepared;
}

}  // namespace

Result<std::shared_ptr<AttentionDnn>> attention_dnn(const DnnAttention& shape, const DnnEngine* wanted) {
  int device = 0, major = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetDevice(&device), "cudaGetDevice"));
  TSR_RETURN_IF_ERROR(from_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                                "compute capability"));
  TSR_RETURN_IF_ERROR(check_supported(shape, major));
  TSR_ASSIGN_OR_RETURN(const Dnn* const dnn, cuda::dnn());
  TSR_ASSIGN_OR_RETURN(Handle* const handle, handle_of(*dnn, device));
  // Layers of one shape share a plan, and so do queries and launches.
  using Key = std::tuple<Handle*, DnnAttention, DnnEngine>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<AttentionDnn>> known;
  const Key key{handle, shape, wanted != nullptr ? *wanted : DnnEngine{-1, {}}};
  const std::lock_guard lock(mutex);
  if (auto found = known[key].lock(); found != nullptr) return found;
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<AttentionDnn> made, plan_attention(*dnn, shape, *handle, wanted));
  known[key] = made;
  return made;
}

// q [B, T, H, D], k, v [B, S, KV, D] -> out [B, T, H, D], lse [B, T, H]
Result<PreparedKernel> prepare_attention_dnn(const KernelSpec& spec) {
  return prepare(spec, false, prepare_attention_mma, prepare_attention);
}

// dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H] -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad_dnn(const KernelSpec& spec) {
  return prepare(spec, true, prepare_attention_grad_mma, prepare_attention_grad);
}

}  // namespace tessera::cuda
