// Compares cuDNN's attention with the own kernels, before any step relies on it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "graph/base/half.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/attention_dnn.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/noise.h"
#include "runtime/backends/cuda/kernels/scratch_memory.h"
#include "runtime/backends/cuda/notes.h"

namespace tessera::cuda {

namespace {

// Enough tiles to show errors at their seams, and the remainder of the last one.
int64_t small_extent(int64_t extent) { return extent <= 384 ? extent : 256 + extent % 128; }

// Heads differ by their address alone: two groups of them, and two sequences, show a wrong one.
DnnAttention small_problem(const DnnAttention& of) {
  DnnAttention small = of;
  small.B = std::min<int64_t>(of.B, 2);
  small.KV = std::min<int64_t>(of.KV, 2);
  small.H = small.KV * (of.H / of.KV);
  small.T = small_extent(of.T);
  small.S = small_extent(of.S);
  return small;
}

// Half an ulp of 1: what storing a value, or a probability before its product, costs in either kernel.
double unit_roundoff(DType dtype) { return dtype == DType::kBF16 ? 0x1p-9 : 0x1p-11; }

struct Operand {
  std::string_view name;
  DType dtype;
  std::vector<int64_t> dims;
  int64_t at = 0;  // in the memory of the check

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : dims) n *= dim;
    return n;
  }
  tsr_abi_tensor abi() const {
    tsr_abi_tensor tensor{static_cast<int32_t>(dtype), static_cast<int32_t>(dims.size()), {}};
    std::ranges::copy(dims, tensor.dims);
    return tensor;
  }
};

class Check {
 public:
  Check(const DnnAttention& shape, const DnnEngine& engine)
      : n_(shape), engine_(engine), scale_(3 / std::sqrt(static_cast<double>(shape.D))) {}
  ~Check() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  Status run() {
    TSR_ASSIGN_OR_RETURN(const std::shared_ptr<AttentionDnn> dnn, attention_dnn(n_, &engine_));
    TSR_RETURN_IF_ERROR(dnn->compile());
    TSR_RETURN_IF_ERROR(prepare_own());
    TSR_RETURN_IF_ERROR(place(dnn->workspace_bytes()));
    const std::vector<size_t> results =
        n_.is_gradient ? std::vector<size_t>{kDq, kDk, kDv} : std::vector<size_t>{kOut, kLse};
    TSR_RETURN_IF_ERROR(launch_own());
    TSR_ASSIGN_OR_RETURN(const auto own, take(results));
    TSR_RETURN_IF_ERROR(launch_dnn(*dnn));
    TSR_ASSIGN_OR_RETURN(const auto first, take(results));
    TSR_RETURN_IF_ERROR(launch_dnn(*dnn));
    TSR_ASSIGN_OR_RETURN(const auto second, take(results));
    for (size_t i = 0; i < results.size(); ++i) {
      TSR_RETURN_IF_ERROR(compare(operands_[results[i]], first[i], own[i]));
      if (first[i] != second[i])
        return Status(StatusCode::kUnsupported,
                      format("{} has other bits the second time", operands_[results[i]].name));
    }
    return {};
  }

 private:
  enum : size_t { kQ, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kOperands };

  // Attributes and factors of the op, nothing split. Scores spread three times as wide as usual, so that
  // errors in them show.
  Result<PreparedKernel> prepare(std::string_view op, std::initializer_list<size_t> inputs,
                                 std::initializer_list<size_t> outputs, PrepareFn best, PrepareFn plain) {
    std::vector<tsr_abi_tensor> in, out;
    for (const size_t i : inputs) in.push_back(operands_[i].abi());
    for (const size_t i : outputs) out.push_back(operands_[i].abi());
    const tsr_abi_attr attrs[] = {{"causal", 0, 0, n_.causal ? 1 : 0, 0, nullptr, nullptr},
                                  {"scale", 1, 0, 0, scale_, nullptr, nullptr},
                                  {"window", 0, 0, 0, 0, nullptr, nullptr},
                                  {"softcap", 1, 0, 0, 0, nullptr, nullptr}};
    const tsr_abi_factor factors[] = {{'t', 1, n_.T, 1, {0, 0}, {n_.T, 0}},
                                      {'s', 1, n_.S, 1, {0, 0}, {n_.S, 0}}};
    const std::string name(op);
    tsr_abi_kernel_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.op = name.c_str();
    desc.op_version = 1;
    desc.attr_count = 4;
    desc.input_count = static_cast<int32_t>(in.size());
    desc.output_count = static_cast<int32_t>(out.size());
    desc.factor_count = 2;
    desc.attrs = attrs;
    desc.inputs = in.data();
    desc.outputs = out.data();
    desc.factors = factors;
    Result<PreparedKernel> prepared = best(KernelSpec(desc));
    return prepared.ok() ? std::move(prepared) : plain(KernelSpec(desc));
  }

  Status prepare_own() {
    const std::vector<int64_t> query{n_.B, n_.T, n_.H, n_.D}, key{n_.B, n_.S, n_.KV, n_.D};
    operands_ = {{{"q", n_.dtype, query},
                  {"k", n_.dtype, key},
                  {"v", n_.dtype, key},
                  {"out", n_.dtype, query},
                  {"lse", DType::kF32, {n_.B, n_.T, n_.H}},
                  {"dout", n_.dtype, query},
                  {"dq", n_.dtype, query},
                  {"dk", n_.dtype, key},
                  {"dv", n_.dtype, key}}};
    TSR_ASSIGN_OR_RETURN(
        forward_, prepare("attention", {kQ, kK, kV}, {kOut, kLse}, prepare_attention_mma, prepare_attention));
    if (!n_.is_gradient) return {};
    TSR_ASSIGN_OR_RETURN(gradient_,
                         prepare("attention_grad", {kDout, kQ, kK, kV, kOut, kLse}, {kDq, kDk, kDv},
                                 prepare_attention_grad_mma, prepare_attention_grad));
    return {};
  }

  Status place(int64_t dnn_workspace_bytes) {
    int64_t bytes = 0;
    const auto add = [&](int64_t size) {
      const int64_t at = bytes;
      bytes += (size + 255) / 256 * 256;
      return at;
    };
    for (Operand& operand : operands_) operand.at = add(dtype_bytes(operand.dtype, operand.elements()));
    workspace_at_ =
        add(std::max({dnn_workspace_bytes, forward_.workspace_bytes, gradient_.workspace_bytes, int64_t{1}}));
    TSR_RETURN_IF_ERROR(memory_.allocate(bytes, "to check cuDNN's attention with"));
    TSR_RETURN_IF_ERROR(from_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    uint32_t seed = 1;
    for (const size_t i : {kQ, kK, kV, kDout})
      fill_with_noise(n_.dtype, memory_.at(operands_[i].at), operands_[i].elements(), seed++, stream_);
    return from_cuda(cudaGetLastError(), "filling operands");
  }

  template <class Launch>
  Status launch(std::initializer_list<size_t> inputs, std::initializer_list<size_t> outputs, Launch launch) {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const size_t i : inputs) in.push_back(memory_.at(operands_[i].at));
    for (const size_t i : outputs) out.push_back(memory_.at(operands_[i].at));
    TSR_RETURN_IF_ERROR(launch(LaunchArgs{in.data(), out.data(), memory_.at(workspace_at_), stream_}));
    return from_cuda(cudaGetLastError(), "a launch");
  }
  Status launch_own() {
    TSR_RETURN_IF_ERROR(launch({kQ, kK, kV}, {kOut, kLse},
                               [&](const LaunchArgs& args) { return forward_.kernel->launch(args); }));
    if (!n_.is_gradient) return {};
    return launch({kDout, kQ, kK, kV, kOut, kLse}, {kDq, kDk, kDv},
                  [&](const LaunchArgs& args) { return gradient_.kernel->launch(args); });
  }
  Status launch_dnn(const AttentionDnn& dnn) {
    const auto run = [&](const LaunchArgs& args) { return dnn.launch(args, static_cast<float>(scale_)); };
    return n_.is_gradient ? launch({kDout, kQ, kK, kV, kOut, kLse}, {kDq, kDk, kDv}, run)
                          : launch({kQ, kK, kV}, {kOut, kLse}, run);
  }

  // Copies the results' bytes, then fills the results with NaN.
  Result<std::vector<std::vector<char>>> take(const std::vector<size_t>& results) {
    std::vector<std::vector<char>> taken;
    for (const size_t i : results) {
      const Operand& operand = operands_[i];
      taken.emplace_back(static_cast<size_t>(dtype_bytes(operand.dtype, operand.elements())));
      TSR_RETURN_IF_ERROR(from_cuda(cudaMemcpyAsync(taken.back().data(), memory_.at(operand.at),
                                                    taken.back().size(), cudaMemcpyDeviceToHost, stream_),
                                    "reading results"));
      TSR_RETURN_IF_ERROR(
          from_cuda(cudaMemsetAsync(memory_.at(operand.at), 0xff, taken.back().size(), stream_), "a fill"));
    }
    TSR_RETURN_IF_ERROR(from_cuda(cudaStreamSynchronize(stream_), "checking cuDNN's attention"));
    return taken;
  }

  double value(const Operand& operand, const std::vector<char>& bytes, int64_t i) const {
    if (operand.dtype == DType::kF32) {
      float value = 0;
      std::memcpy(&value, bytes.data() + i * 4, 4);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    return operand.dtype == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits);
  }

  // Compares row by row. Both kernels round results and probabilities, each of which costs a row of n values
  // about u/sqrt(3) of its length, so that two of them differ by little more than u. 8 u leaves room for
  // cancellation within a row, which the mean row stands for. One wrong key of 300 moves a row by 6 % and
  // more. The log of the sum (one value a row) is f32 in both, of probabilities that may have been rounded: 2
  // u.
  Status compare(const Operand& operand, const std::vector<char>& got,
                 const std::vector<char>& wanted) const {
    const double u = unit_roundoff(n_.dtype);
    const int64_t width = operand.dtype == DType::kF32 ? 1 : n_.D, rows = operand.elements() / width;
    std::vector<double> size(static_cast<size_t>(rows)), error(static_cast<size_t>(rows));
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      double squares = 0, off = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        const double a = value(operand, got, i), b = value(operand, wanted, i);
        squares += b * b;
        off += (a - b) * (a - b);
      }
      total += squares;
      size[static_cast<size_t>(row)] = std::sqrt(squares);
      error[static_cast<size_t>(row)] = std::sqrt(off);
    }
    const double mean = std::sqrt(total / static_cast<double>(rows));
    for (size_t row = 0; row < size.size(); ++row) {
      const double most = operand.dtype == DType::kF32 ? 2 * u : 8 * u * (size[row] + mean);
      if (!(error[row] <= most))  // also where it is no number
        return Status(StatusCode::kUnsupported,
                      format("row {} of {} is off by {}, at most {}", static_cast<uint64_t>(row),
                             operand.name, error[row], most));
    }
    return {};
  }

  DnnAttention n_;
  DnnEngine engine_;
  double scale_;
  std::array<Operand, kOperands> operands_;
  PreparedKernel forward_, gradient_;
  ScratchMemory memory_;
  int64_t workspace_at_ = 0;
  cudaStream_t stream_ = nullptr;
};

std::string text(const DnnAttention& n) {
  return format("{} of {} ({} and {} heads of {}, {} x {} queries, {} keys{})",
                n.is_gradient ? "attention_grad" : "attention", to_text(n.dtype), n.H, n.KV, n.D, n.B, n.T,
                n.S, n.causal ? ", causal" : "");
}

}  // namespace

Status check_attention_dnn(const DnnAttention& shape, const DnnEngine& engine) {
  using Key = std::tuple<int, DnnAttention, DnnEngine>;
  static std::mutex mutex;
  static std::map<Key, Status> known;
  int device = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetDevice(&device), "cudaGetDevice"));
  const DnnAttention small = small_problem(shape);
  const std::lock_guard lock(mutex);
  const Key key{device, small, engine};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  Status status = Check(small, engine).run();
  // Out of memory decides nothing, and plans must not depend on it.
  if (status.code() == StatusCode::kOutOfMemory) return status;
  if (!status.ok()) {
    (void)cudaGetLastError();
    const std::string why =
        format("cuDNN is not used for {}: {}: {}", text(small), engine.text(), status.message());
    note(why);
    status = Status(StatusCode::kUnsupported, why);
  }
  known.emplace(key, status);
  return status;
}

}  // namespace tessera::cuda
