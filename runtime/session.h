// Executable: a Program prepared on a DeviceSet (kernels ready, communicators made, arena sizes known).
// Immutable and shareable between threads. Session: one arena per rank; owns state; one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/analysis/dependencies.h"
#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/program.h"
#include "graph/trace.h"
#include "runtime/device_set.h"

namespace tessera {

class SharedWeights;

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
  // Poison the arenas and find the highest byte that runs touch; costs two scans.
  bool measure_memory = false;
  // Record begin and end of every instruction: of the device where it can time events (then launches are
  // those of a run without a trace), else of the host, with every launch by itself.
  bool trace = false;
  bool fuse_launches = true;     // false: every kernel by itself
  bool capture = true;           // false: every run is issued, even where the backend could capture it
  std::string file_folder = {};  // of the file tier; empty: $TMPDIR, else /tmp
  // Limit on all ranks' host arenas together; 0: none. A program above it is refused before anything is
  // allocated.
  int64_t host_memory_limit = 0;
  // A run in which nothing finishes for this time, while no rank computes, is aborted with kTimeout; 0:
  // never. Needs a backend that blocks: others wait inside their driver.
  double watchdog_s = 0;
  std::optional<StreamOptions> streams = {};  // streams that may overlap; none: usual_streams
  // Memory of all its read-only parameters (shared_weights.h), which then have values; null: in the arena.
  std::shared_ptr<const SharedWeights> weights = {};
  uint64_t perturbation_seed = 0;  // tests: short random waits before instructions and inside communicators
};

// Sizes of the arenas, and the highest byte touched so far; -1 where not measured. The file tier is always
// measured.
struct MemoryReport {
  std::string device;
  int64_t predicted_bytes = 0, measured_bytes = -1;  // device tier: the Program's arena
  int64_t host_predicted_bytes = 0, host_measured_bytes = -1;
  int64_t file_predicted_bytes = 0, file_measured_bytes = 0;
  int64_t max_live_bytes = 0;
  int64_t shared_bytes = 0;  // of the device tier's arena: weights in memory that other sessions may use too
  int64_t copied_bytes = 0;  // of those: not the model's own memory, nor its file
  // Memory of the whole device, all users included: predicted is the amount used before this session's arenas
  // plus those; measured is the amount used now. -1 where the backend does not tell.
  int64_t device_predicted_bytes = -1, device_measured_bytes = -1;
};

// Totals since the session began, over all ranks; `calls` as seen by one rank (the largest).
struct CommReport {
  std::string collective;        // "all_reduce"
  std::string axis;              // "dp", "tp", "dp+tp"
  int64_t calls = 0, bytes = 0;  // ring-equivalent bytes, from the buffers really passed
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<Executable> executable,
                                                 SessionOptions options = {});
  ~Session();

  // Parameters, constants and state by name, whole (global) tensors; scattered to every rank that holds a
  // part. State not written starts as zeros. Types must match exactly. A shared weight becomes one of its own
  // where the value is another.
  Status write(std::string_view name, const HostTensor& value);
  // Rows [first, first + n) of a state, where value is [n, the state's other dims]; the other rows stay. For states that
  // hold many things in slots along their first dim.
  Status write_rows(std::string_view name, int64_t first, const HostTensor& value);
  // The global value of a parameter or state, assembled from its pieces (owner: the lowest rank listing a
  // box).
  Result<HostTensor> read(std::string_view name);
  Status read_into(std::string_view name, std::span<std::byte> out);

  // Feeds an input of an entry, which keeps its value until fed again.
  Status feed(std::string_view entry, std::string_view input, const HostTensor& value);
  // Runs on all ranks and returns when all are done. The first error on any rank aborts the others'
  // communicators and is returned; after an error the session accepts only `write`, `read` and destruction
  // until `restore`.
  Status run(std::string_view entry);
  Status fetch_into(std::string_view entry, std::string_view output, std::span<std::byte> out);
  Result<HostTensor> fetch(std::string_view entry, std::string_view output);
  void cancel();        // from any thread: the run in progress returns kCancelled
  bool failed() const;  // since the last failed or cancelled run, until restore; any thread
  Status restore();     // after an error: communicators are made again; state must be written again
  Status zero_state();  // all state to zeros
  bool is_shared(std::string_view name) const;  // whether the parameter lies in shared memory, on all ranks
  // Address of the rank's part, in memory of its device or of the host; null in the file tier.
  const std::byte* parameter_address(int32_t rank, const SlotRef& at) const;

  std::vector<MemoryReport> memory();
  std::vector<CommReport> communication() const;
  void reset_communication();
  int64_t allocations() const;  // allocations made by run() since creation, on the runtime's own paths
  std::vector<TraceEvent> take_trace();
  // Kernel launches in a run of the entry, on the rank with the most; 0 for an unknown entry. A backend that
  // fuses launches has fewer than the program has kernels.
  int64_t launches(std::string_view entry) const;
  // Whether runs of the entry are one launch on each of its ranks by now, since a backend captured it.
  bool is_captured(std::string_view entry) const;
  const Executable& executable() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
