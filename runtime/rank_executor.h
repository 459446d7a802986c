// RankExecutor: one rank of a session. Owns its arenas and streams. Its entry points
// are resolved to pointers once, so that a run reads flat lists and allocates nothing.
//
// Every instruction waits exactly for its dependencies (graph/analysis/dependencies.h).
// On a blocking backend each stream except the first has a thread, started on first use
// and ended when idle; the caller of `run` runs the first stream. On other backends the
// caller issues to all streams in program order, with events between them.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core_arbiter.h"
#include "runtime/entry_capture.h"
#include "runtime/executable_impl.h"
#include "runtime/rank_memory.h"
#include "runtime/rank_stream.h"
#include "runtime/step_issue.h"

namespace tessera {

// RunSignals: state shared by the ranks of a run.
struct RunSignals {
  std::atomic<bool> stop{false};             // no new instruction begins once it is set
  std::function<void(const Status&)> fail;   // sets `stop` and wakes all waiters; from any thread
  int64_t origin_ns = 0;                     // of traces
  CoreArbiter::Turn* turn = nullptr;         // of the run in progress
  std::function<void()> begin_update;        // called before instructions that write parameters; may be empty
  std::map<std::string, CaptureVote> votes;  // by entry; grows while executors are made
};

// RankComms: one rank's members of communicators.
struct RankComms {
  std::vector<CommMember*> groups;                      // by RankProgram::groups
  std::unordered_map<int32_t, CommEnd*> sends, receives;  // by peer
};

class RankExecutor {
 public:
  // Makes the executor of Program::ranks[index].
  static Result<std::unique_ptr<RankExecutor>> create(const Executable::Impl& executable, size_t index,
                                                      const SessionOptions& options, RunSignals& signals);
  ~RankExecutor();
  RankExecutor(const RankExecutor&) = delete;
  RankExecutor& operator=(const RankExecutor&) = delete;

  const RankProgram& program() const { return program_; }
  RankMemory& memory() { return *memory_; }
  // Between runs: moves a shared weight's slot to its own memory, for all later instructions.
  Status unshare(int32_t slot);
  tsr_abi_stream* stream() const { return streams_[0]->stream; }  // for copies between runs
  void set_comms(RankComms comms) { comms_ = std::move(comms); }
  // Drops graphs that hold communicators, before these end. Entries that communicate start over.
  void release_comms();

  // Runs entry `index` and waits for all
  // streams. Errors are signalled at once.
  void run(int32_t index);
  void wake();  // from any thread, after `stop` is set: ends all waits for instructions

  // Progress: a snapshot for the watchdog, from any thread.
  struct Progress {
    bool computes = false, communicates = false;
    int64_t done = 0;  // instructions of this run
  };
  Progress progress() const;
  std::string waiting_text(int32_t index) const;  // current instruction of each stream and its peers

  int64_t launches(int32_t index) const;  // kernel launches in a run of the entry
  bool is_captured(int32_t index) const;  // whether runs of the entry are now one launch

  // Growth of this object's buffers during runs: only the trace can grow.
  int64_t allocations_in_runs() const;
  std::vector<TraceEvent> take_trace();  // by stream

 private:
  RankExecutor(const Executable::Impl& executable, size_t index, const SessionOptions& options,
               RunSignals& signals);
  Status resolve();
  Status resolve_entry(size_t entry, const Dependencies& dependencies);
  void mark_updates(size_t entry);
  Status prepare_issue(size_t entry, std::span<RankStream* const> streams);
  RankStream& stream_of(const StreamId& id);
  void give_threads();
  void finish_stream();

  void run_stream(RankStream& stream, int32_t entry);
  void issue_all(int32_t entry);
  Status issue_steps(int32_t entry, CollectiveOrder& order);
  Status run_step(RankStream& stream, int32_t entry, const Step& step);
  bool spins_for(const RankStream& other) const;
  bool wait_for(const StepWait& wait) const;
  Status execute(const RankStream& stream, const Step& step);
  Status failure(int32_t entry, const Step& step, const Status& status) const;
  void record(RankStream& stream, int32_t entry, const Step& step, int64_t begin_ns);
  void log(int32_t level, const std::string& text) const;

  const tsr_backend_api& api_;
  const DeviceSet::Impl& devices_;
  const RankProgram& program_;
  const std::vector<tsr_abi_kernel*>& kernels_;
  const int32_t rank_;
  const SessionOptions options_;
  RunSignals& signals_;
  const bool blocking_;
  const size_t ranks_;  // of the program
  const bool may_spin_, has_spare_cores_;
  tsr_abi_device* device_;
  std::unique_ptr<RankMemory> memory_;
  std::vector<std::unique_ptr<RankStream>> streams_;  // sorted by id; [0] computes
  // By entry, on asynchronous backends: stream and position of every instruction in program order.
  std::vector<std::vector<std::pair<RankStream*, int32_t>>> order_;
  std::vector<std::unique_ptr<EntryCapture>> captures_;  // by entry, on asynchronous backends
  FusedLaunches fused_;
  std::vector<StepWait> waits_;
  std::vector<tsr_abi_event*> events_;
  std::unique_ptr<DeviceTimers> timers_;  // for a trace, on a device that can time events
  std::optional<StepResolver> resolver_;  // set once there is memory
  RankComms comms_;
  WaitWord running_{0};  // threaded streams that have not finished the run
};

using RankExecutors = std::vector<std::unique_ptr<RankExecutor>>;

}  // namespace tessera
