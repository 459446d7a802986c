// CUDA kernels: `prepare` reads the description, decides everything and may decline with a reason. The kernel
// that it returns only launches on a stream (no allocation, no look-up, no waiting). Immutable, so that any
// number of ranks share it. The described device is current while `prepare` runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_adapter.h"

namespace tessera::cuda {

struct Overlap;

struct LaunchArgs {
  const void* const* inputs;  // null for shape-only operands
  void* const* outputs;
  void* workspace;  // null when none was asked for; aligned as arenas align slots
  cudaStream_t stream;
  Overlap* overlap = nullptr;  // null without overlap (kernels/overlap.cuh)
  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

class Kernel;

// A later launch of the same stream, at known addresses; its arguments have no stream.
struct ComingLaunch {
  const Kernel* kernel;
  LaunchArgs args;
};
// Fused: one kernel for the first `taken` of the coming launches, launched without operands.
struct Fused {
  std::unique_ptr<Kernel> kernel;
  int32_t taken = 0;
};

struct DecodeStep;

// Launch cost a kernel where a step has one for each parameter: a model has dozens, and all of them are a
// launch or two.
inline constexpr double kShareOfMany = 1.0 / 16;

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Errors of kernel launches proper are picked up by the caller (cudaGetLastError).
  virtual Status launch(const LaunchArgs& args) const = 0;
  virtual bool fuses() const { return false; }  // whether it is worth asking
  // Share of a launch's cost in estimates, where programs have such kernels in sequences that become one
  // launch.
  virtual double launch_share() const { return 1; }
  // Fuses this kernel's own launch, the first of `coming`, with those after it.
  virtual Fused fuse(std::span<const ComingLaunch> coming) const {
    (void)coming;
    return {};
  }
  // The step that it can contribute to a launch of decoding steps (kernels/decode_step.h); null for none.
  virtual const DecodeStep* decode_step() const { return nullptr; }
};

class CublasLtMatmul;

struct PreparedKernel {
  std::unique_ptr<Kernel> kernel;
  int64_t workspace_bytes = 0;
  // For the time estimate: seconds = max(flops / (efficiency * peak), bytes / bandwidth) + launch cost.
  double flops = 0, bytes = 0, efficiency = 1;
  // Matmuls whose algorithm a variant can name (kernels/lt_choices.h), in the order of its words.
  std::vector<std::shared_ptr<const CublasLtMatmul>> products = {};
  // Does slow work that a launch needs and a query does not; empty for none. Any number of calls.
  std::function<Status()> compile = {};
};

// A kernel from a callable `void(const LaunchArgs&) const` or `Status(const LaunchArgs&) const`.
template <class Launch>
std::unique_ptr<Kernel> make_kernel(Launch launch) {
  class Lambda final : public Kernel {
   public:
    explicit Lambda(Launch launch) : launch_(std::move(launch)) {}
    Status launch(const LaunchArgs& args) const override {
      if constexpr (std::is_void_v<std::invoke_result_t<const Launch&, const LaunchArgs&>>) {
        launch_(args);
        return {};
      } else {
        return launch_(args);
      }
    }

   private:
    Launch launch_;
  };
  return std::make_unique<Lambda>(std::move(launch));
}

// `fast` where every operand is at a multiple of 16 bytes, as slots are; else, for views into them, `plain`.
inline std::unique_ptr<Kernel> where_aligned(const KernelSpec& spec, std::unique_ptr<Kernel> fast,
                                             std::unique_ptr<Kernel> plain) {
  class Either final : public Kernel {
   public:
    Either(int inputs, int outputs, std::unique_ptr<Kernel> fast, std::unique_ptr<Kernel> plain)
        : inputs_(inputs), outputs_(outputs), fast_(std::move(fast)), plain_(std::move(plain)) {}
    Status launch(const LaunchArgs& args) const override {
      uintptr_t bits = 0;
      for (int i = 0; i < inputs_; ++i) bits |= reinterpret_cast<uintptr_t>(args.inputs[i]);
      for (int i = 0; i < outputs_; ++i) bits |= reinterpret_cast<uintptr_t>(args.outputs[i]);
      return (bits % 16 == 0 ? fast_ : plain_)->launch(args);
    }

   private:
    int inputs_, outputs_;
    std::unique_ptr<Kernel> fast_, plain_;
  };
  return std::make_unique<Either>(spec.input_count(), spec.output_count(), std::move(fast), std::move(plain));
}

// Bytes of all operands, without operand `skipped`, of which only the shape is used.
inline double operand_bytes(const KernelSpec& spec, int skipped = -1) {
  double total = 0;
  for (int i = 0; i < spec.input_count(); ++i)
    if (i != skipped) total += static_cast<double>(dtype_bytes(spec.input_dtype(i), spec.input_elements(i)));
  for (int i = 0; i < spec.output_count(); ++i)
    total += static_cast<double>(dtype_bytes(spec.output_dtype(i), spec.output_elements(i)));
  return total;
}

// A kernel bound by memory: every operand once, at most of the bandwidth.
inline PreparedKernel memory_bound(const KernelSpec& spec, std::unique_ptr<Kernel> kernel,
                                   int64_t workspace_bytes = 0) {
  PreparedKernel prepared;
  prepared.kernel = std::move(kernel);
  prepared.workspace_bytes = workspace_bytes;
  prepared.bytes = operand_bytes(spec) / 0.8 + 2.0 * static_cast<double>(workspace_bytes);
  return prepared;
}

using PrepareFn = Result<PreparedKernel> (*)(const KernelSpec& spec);

// One row of kernel_table.cc: best first. A status of kUnsupported declines and the next row of the same op
// is asked.
struct KernelEntry {
  std::string_view op;
  std::string_view variant;
  PrepareFn prepare;
  bool has_algorithms = false;  // whether its variant may name those of its products
};
std::span<const KernelEntry> kernel_table();

}  // namespace tessera::cuda
