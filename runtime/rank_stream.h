// RankStream: one stream of one rank: its resolved instructions
// by entry, the progress of a run, and its activity.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/analysis/dependencies.h"
#include "graph/base/perturbation.h"
#include "graph/base/waiting.h"
#include "runtime/backend_abi.h"
#include "runtime/on_call_threads.h"

namespace tessera {

struct RankStream;

// StepWait: a wait until `count` instructions of `stream` are
// done. `event`: of the last of them, on backends with events.
struct StepWait {
  RankStream* stream = nullptr;
  int32_t count = 0;
  tsr_abi_event* event = nullptr;
};

// Step: one instruction, resolved.
struct Step {
  // kFused: a kernel that runs as part of a launch before it on the stream (step_issue.h).
  enum class Kind : uint8_t { kKernel, kCollective, kSend, kReceive, kCopy, kFileRead, kFileWrite, kFused };
  Kind kind = Kind::kKernel;
  bool is_awaited = false;               // by another stream
  bool begins_batch = false;             // the first of a micro-batch on the stream, except of the run's first
  bool begins_update = false;            // the stream's first that writes a parameter
  int32_t instruction = 0;               // index in the entry's code
  int32_t channel = -1;                  // group of a collective, peer of a send or receive
  int32_t wait_begin = 0, wait_end = 0;  // in RankExecutor's list
  tsr_abi_event* event = nullptr;        // recorded after it
  tsr_abi_event* begins = nullptr;       // for traces on devices with timed events: before and after it
  tsr_abi_event* ends = nullptr;
  tsr_abi_kernel* kernel = nullptr;
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;
  const void* in = nullptr;  // collective, send, copy, file write
  void* out = nullptr;       // collective, receive, copy, file read
  int64_t file_offset = 0;
  int64_t rows = 1, row_bytes = 0, in_stride_bytes = 0, out_stride_bytes = 0;
  tsr_abi_collective collective{};

  bool communicates() const {
    return kind == Kind::kCollective || kind == Kind::kSend || kind == Kind::kReceive;
  }
};

// Activity of a stream, as the watchdog sees it.
enum class StreamActivity : uint8_t { kIdle, kWaits, kComputes, kCommunicates };

struct RankStream {
  StreamId id;
  tsr_abi_stream* stream = nullptr;
  std::vector<std::vector<Step>> steps;  // by entry
  Perturbation perturbation;

  // Number of done instructions of the present run, plus
  // kStopped once the run has failed. Other streams wait on it.
  static constexpr int kStopped = 1 << 30;
  WaitWord done{0};
  std::atomic<StreamActivity> activity{StreamActivity::kIdle};
  std::atomic<int32_t> instruction{-1};  // in progress

  // The thread that runs `entry`, on blocking backends for every stream except the first.
  std::unique_ptr<OnCallThreads> thread;
  int32_t entry = -1;

  struct Record {
    int32_t entry, instruction;
    int64_t begin_ns, end_ns;
  };
  std::vector<Record> records;  // of the trace
  int64_t growths = 0;          // of `records` during runs
  void add_record(const Record& record) {
    growths += records.size() == records.capacity();
    records.push_back(record);
  }
};

}  // namespace tessera
