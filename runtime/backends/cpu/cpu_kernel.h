// CPU kernels: `prepare` reads the description, decides everything and may decline with a reason; the kernel
// that it returns only launches (no allocation, no look-up, no waiting). Immutable, so any number of ranks
// share it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "graph/base/result.h"
#include "runtime/backend_adapter.h"

namespace tessera::cpu {

// The shared pool as a kernel sees it. Partitions depend on shapes, never on the number of threads: same bits
// for any.
class Pool {
 public:
  // `alone`: the caller runs every task.
  explicit Pool(const tsr_host_api& host, bool alone = false) : host_(host), alone_(alone) {}
  Pool alone() const { return Pool(host_, true); }
  // Calls body(task) for 0..tasks-1 on the pool, the caller taking part; returns when all are done.
  template <class Body>
  void parallel_for(int64_t tasks, Body&& body) const {
    if (tasks == 1 || alone_) {
      for (int64_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    host_.parallel_for(
        host_.host, tasks, [](void* context, int64_t task) { (*static_cast<Plain*>(context))(task); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  // body(begin, end) over [0, count) in equal pieces of at least `grain` (a multiple of it, except the last).
  template <class Body>
  void parallel_ranges(int64_t count, int64_t grain, Body&& body) const {
    if (count <= 0) return;
    const int64_t tasks = (count + grain - 1) / grain;
    parallel_for(tasks, [&](int64_t task) {
      const int64_t begin = task * grain;
      body(begin, begin + grain < count ? begin + grain : count);
    });
  }

 private:
  friend class Scratch;
  const tsr_host_api& host_;
  const bool alone_;
};

// Floats of one task, for tiles: stacks hold no more than 16 KiB of them, since hosts of this library run threads
// with little. Throws std::bad_alloc.
class Scratch {
 public:
  Scratch(const Pool& pool, int64_t floats)
      : host_(pool.host_), memory_(host_.take_scratch(host_.host, static_cast<size_t>(floats) * sizeof(float))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    next_ = static_cast<float*>(memory_);
  }
  ~Scratch() { host_.give_scratch(host_.host, memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // The next so many, a multiple of 16: aligned to 64 bytes, not initialized.
  float* floats(int64_t count) { return std::exchange(next_, next_ + count); }

 private:
  const tsr_host_api& host_;
  void* memory_;
  float* next_ = nullptr;
};

struct LaunchArgs {
  const void* const* inputs;  // null for shape-only operands
  void* const* outputs;
  void* workspace;  // 64-byte aligned; null when none was asked for
  Pool pool;
  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void launch(const LaunchArgs& args) const = 0;

  // Number of phases of a launch; 0: the kernel always runs alone, never in a group (kernel_group.h). The tasks of a
  // phase run in any order and at the same time, once all tasks of the phase before have ended.
  virtual int phase_count() const { return 0; }
  virtual int64_t task_count(const LaunchArgs&, int /*phase*/) const { return 0; }
  virtual void run_task(const LaunchArgs&, int /*phase*/, int64_t /*task*/) const {}
  // Whether a phase has too little work to share it.
  virtual bool is_small(int /*phase*/) const { return false; }
};

struct PreparedKernel {
  std::unique_ptr<Kernel> kernel;
  int64_t workspace_bytes = 0;
  // For the time estimate: seconds = max(flops / (efficiency * peak), bytes / bandwidth) + launch cost.
  double flops = 0, bytes = 0, efficiency = 1;
};

// A kernel from a callable `void(const LaunchArgs&) const`.
template <class Launch>
std::unique_ptr<Kernel> make_kernel(Launch launch) {
  class Lambda final : public Kernel {
   public:
    explicit Lambda(Launch launch) : launch_(std::move(launch)) {}
    void launch(const LaunchArgs& args) const override { launch_(args); }

   private:
    Launch launch_;
  };
  return std::make_unique<Lambda>(std::move(launch));
}

// A kernel of phases, from callables `int64_t(const LaunchArgs&, int phase) const`, the number of tasks, and
// `void(const LaunchArgs&, int phase, int64_t task) const`. With `small_first` the first phase is small.
template <class Tasks, class Run>
std::unique_ptr<Kernel> make_phased_kernel(int phases, bool small_first, Tasks tasks, Run run) {
  class Phased final : public Kernel {
   public:
    Phased(int phases, bool small_first, Tasks tasks, Run run)
        : phases_(phases), small_first_(small_first), tasks_(std::move(tasks)), run_(std::move(run)) {}
    void launch(const LaunchArgs& args) const override {
      for (int phase = 0; phase < phases_; ++phase)
        args.pool.parallel_for(tasks_(args, phase), [&](int64_t task) { run_(args, phase, task); });
    }
    int phase_count() const override { return phases_; }
    int64_t task_count(const LaunchArgs& args, int phase) const override { return tasks_(args, phase); }
    void run_task(const LaunchArgs& args, int phase, int64_t task) const override { run_(args, phase, task); }
    bool is_small(int phase) const override { return phase == 0 && small_first_; }

   private:
    int phases_;
    bool small_first_;
    Tasks tasks_;
    Run run_;
  };
  return std::make_unique<Phased>(phases, small_first, std::move(tasks), std::move(run));
}

using PrepareFn = Result<PreparedKernel> (*)(const KernelSpec& spec);

// One row of kernel_table.cc: best first, "reference" last. A status of kUnsupported declines and the next
// row of the same op is asked.
struct KernelEntry {
  std::string_view op;
  std::string_view variant;
  PrepareFn prepare;
  bool has_algorithms = false;  // the variant's name may go on after a colon, which `prepare` reads
};
std::span<const KernelEntry> kernel_table();

// dispatch_float(dtype, f): f(float{}) or f(double{}); kUnsupported for other types. The reference kernels
// are templates over the element type and accumulate in double.
template <class F>
Result<PreparedKernel> dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kF64: return f(double{});
    default:
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: this kernel computes in f32 or f64", to_text(dtype)));
  }
}

}  // namespace tessera::cpu
