// Executable: a Program prepared on a DeviceSet (kernels ready, communicators made, arena sizes known). Immutable and
// shareable between threads. Session: one arena per rank; owns state; one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

class Executable {
 public:
  // Verifies the Program, prepares exactly the recorded kernel variants. No arena is allocated yet.
  static Result<std::shared_ptr<Executable>> prepare(std::shared_ptr<DeviceSet> devices, Program program);
  ~Executable();
  const Program& program() const;
  DeviceSet& devices() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct SessionOptions {
  bool measure_memory = false;  // poison the arenas and find the highest byte that runs touch; costs two scans
  bool trace = false;           // record begin and end of every instruction
};

struct MemoryReport {
  std::string device;
  int64_t predicted_bytes = 0;  // the Program's arena
  int64_t measured_bytes = -1;  // highest byte touched so far; -1 when not measured
  int64_t max_live_bytes = 0;
};

// Totals since the session began, over all ranks; `calls` as seen by one rank (the largest).
struct CommReport {
  std::string collective;  // "all_reduce"
  std::string axis;        // "dp", "tp", "dp+tp"
  int64_t calls = 0, bytes = 0;  // ring-equivalent bytes, from the buffers really passed
};

struct TraceEvent {
  int32_t rank = 0;
  std::string name;   // "matmul block.0.mlp", "all_reduce tp"
  std::string category;  // "kernel", "collective", "copy"
  int64_t begin_ns = 0, end_ns = 0;  // since the session began
  int32_t micro_batch = 0;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<Executable> executable, SessionOptions options = {});
  ~Session();

  // Parameters, constants and state by name, whole (global) tensors; scattered to every rank that holds a part.
  // State not written starts as zeros. Types must match exactly.
  Status write(std::string_view name, const HostTensor& value);
  // The global value of a parameter or state, assembled from its pieces (owner: the lowest rank listing a box).
  Result<HostTensor> read(std::string_view name);
  Status read_into(std::string_view name, std::span<std::byte> out);

  // Inputs of an entry hold their value until fed again.
  Status feed(std::string_view entry, std::string_view input, const HostTensor& value);
  // Runs on all ranks and returns when all are done. The first error on any rank aborts the others' communicators
  // and is returned; after an error the session accepts only `write`, `read` and destruction until `restore`.
  Status run(std::string_view entry);
  Status fetch_into(std::string_view entry, std::string_view output, std::span<std::byte> out);
  Result<HostTensor> fetch(std::string_view entry, std::string_view output);
  void cancel();              // from any thread: the run in progress returns kCancelled
  bool failed() const;        // since the last failed or cancelled run, until restore
  Status restore();           // after an error: communicators are made anew; state must be written again
  Status zero_state();        // all state to zeros

  std::vector<MemoryReport> memory();
  std::vector<CommReport> communication() const;
  void reset_communication();
  int64_t allocations() const;  // allocations made by run() since creation, on the runtime's own paths
  std::vector<TraceEvent> take_trace();
  const Executable& executable() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
