// RankExecutor: one rank of a session. Owns its arenas and stream; its entry points are resolved to pointers
// once, so that running one is a walk over a flat list that allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/executable_impl.h"

namespace tessera {

// One instruction with everything looked up.
struct Step {
  enum class Kind : uint8_t { kKernel, kCollective, kSend, kRecv, kCopy, kExchangeBegin, kExchangeEnd };
  Kind kind = Kind::kKernel;
  int32_t instruction = 0;  // index in the entry's code
  int32_t group = 0;        // of comms(): RankProgram::groups, and one more for send and recv
  int32_t peer = -1;
  tsr_abi_kernel* kernel = nullptr;
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;
  const void* in = nullptr;  // collective, send, copy
  void* out = nullptr;       // collective, recv, copy
  int64_t rows = 1, row_bytes = 0, in_stride_bytes = 0, out_stride_bytes = 0;
  tsr_abi_collective collective{};
};

class RankExecutor {
 public:
  static Result<std::unique_ptr<RankExecutor>> create(const Executable::Impl& executable, int32_t rank,
                                                      bool trace);
  ~RankExecutor();
  RankExecutor(const RankExecutor&) = delete;
  RankExecutor& operator=(const RankExecutor&) = delete;

  const RankProgram& program() const { return program_; }
  tsr_abi_stream* stream() const { return stream_; }
  void* arena() const { return arenas_[0]; }
  void* address(const SlotRef& ref) const;  // null for slot -1

  // This rank's ends, by group index; the last is for send and recv, null when the program has none.
  void set_comms(std::vector<tsr_abi_comm*> comms) { comms_ = std::move(comms); }

  // Runs entry `index` of this rank's program and waits for its stream. Stops early with kAborted once `stop`
  // is set.
  Status run(int32_t index, const std::atomic<bool>& stop, int64_t origin_ns);
  // Growth of this object's own buffers during runs: the trace is the only one that can grow.
  int64_t allocations_in_runs() const { return allocations_in_runs_; }
  std::vector<TraceEvent> take_trace() { return std::exchange(trace_, {}); }

 private:
  RankExecutor(const Executable::Impl& executable, int32_t rank, bool trace);
  Status allocate();
  Status resolve();
  void resolve_entry(size_t entry);
  Status execute(const Step& step);
  Status failure(int32_t entry, const Step& step, const Status& status) const;
  std::string label(int32_t entry, const Step& step) const;
  void record(int32_t entry, const Step& step, int64_t begin_ns, int64_t end_ns);

  const tsr_backend_api& api_;
  const DeviceSet::Impl& devices_;
  const RankProgram& program_;
  const std::vector<tsr_abi_kernel*>& kernels_;
  int32_t rank_;
  bool trace_on_;
  tsr_abi_device* device_;
  tsr_abi_stream* stream_ = nullptr;
  void* arenas_[2] = {nullptr, nullptr};  // by tier
  std::vector<std::vector<Step>> steps_;  // by entry
  std::vector<void*> pointers_;           // operand lists of all kernel steps; never grows once resolved
  std::vector<tsr_abi_comm*> comms_;
  std::vector<TraceEvent> trace_;
  int64_t allocations_in_runs_ = 0;
};

}  // namespace tessera
