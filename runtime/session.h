// Executable: a Program prepared on a DeviceSet (kernels ready, communicators made, arena sizes known).
// Immutable and shareable between threads. Session: one arena per rank; owns state; one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
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
#include "runtime/led_calls.h"
#include "runtime/turn_ledger.h"

namespace tessera {

class SharedWeights;

class Executable {
 public:
  // Verifies the Program and prepares exactly the recorded kernel variants. Allocates no arena.
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
  // Poisons the arenas to find the highest byte that runs touch; costs two scans.
  bool measure_memory = false;
  // Records begin and end of every instruction, on the device if it can time events
  // (then with the usual launches), else on the host with every kernel launched alone.
  bool trace = false;
  bool fuse_launches = true;     // false: every kernel alone
  bool capture = true;           // false: every run is issued, even if the backend can capture
  std::string file_folder = {};  // of the file tier; empty: $TMPDIR, else /tmp
  // Limit on the sum of all host arenas; 0: none. A
  // larger program is refused before any allocation.
  int64_t host_memory_limit = 0;
  // Aborts a run with kTimeout if for this time nothing finishes and no rank
  // computes; 0: never. Only for blocking backends; others wait inside their driver.
  // Ranks of other processes count too, as far as their transport tells.
  double watchdog_s = 0;
  std::optional<StreamOptions> streams = {};  // streams that may overlap; nullopt: usual_streams
  // Memory of all read-only parameters (shared_weights.h), with values; null: in the arena.
  std::shared_ptr<const SharedWeights> weights = {};
  // Whose turn runs take on devices that share the runtime's cores (core_arbiter.h).
  CoreSide side = CoreSide::kNone;
  // Called once in a run on such devices, in any thread, before the first instruction that writes a parameter. It may wait
  // for other runs: this one has no turn meanwhile.
  std::function<void()> before_update = {};
  uint64_t perturbation_seed = 0;  // tests: short random waits before instructions and inside communicators
};

// MemoryReport: sizes of the arenas, and the highest byte touched
// so far; -1: not measured. The file tier is always measured.
struct MemoryReport {
  std::string device;
  int64_t predicted_bytes = 0, measured_bytes = -1;  // device tier: the Program's arena
  int64_t host_predicted_bytes = 0, host_measured_bytes = -1;
  int64_t file_predicted_bytes = 0, file_measured_bytes = 0;
  int64_t max_live_bytes = 0;
  int64_t shared_bytes = 0;  // of the device arena: weights in memory shared with other sessions
  int64_t copied_bytes = 0;  // of those: neither the model's own memory nor its file
  // Memory of the whole device, all users included. predicted: the amount used before this
  // session, plus its arenas; measured: the amount used now. -1: unknown to the backend.
  int64_t device_predicted_bytes = -1, device_measured_bytes = -1;
};

// Totals since the session began, over all ranks; `calls`: of the rank with the most.
struct CommReport {
  std::string collective;        // "all_reduce"
  std::string axis;              // "dp", "tp", "dp+tp"
  int64_t calls = 0, bytes = 0;  // ring-equivalent bytes of the buffers passed
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<Executable> executable,
                                                 SessionOptions options = {});
  ~Session();

  // Writes a parameter, constant or state by name, from the whole (global)
  // tensor to every rank with a part. Unwritten state is zero. Types must
  // match exactly. A shared weight with a new value becomes the session's own.
  Status write(std::string_view name, const HostTensor& value);
  // Writes rows [first, first + n) of a state, or of a written parameter that is not
  // shared; value is [n, other dims]. For slots along the first dim.
  Status write_rows(std::string_view name, int64_t first, const HostTensor& value);
  // Reads rows [first, first + n) likewise; `out` has the bytes of n rows.
  Status read_rows_into(std::string_view name, int64_t first, std::span<std::byte> out);
  // The global value of a parameter or state, assembled from
  // its pieces (owner: the lowest rank that lists a box).
  Result<HostTensor> read(std::string_view name);
  Status read_into(std::string_view name, std::span<std::byte> out);

  // Feeds an input, which keeps its value until fed again.
  Status feed(std::string_view entry, std::string_view input, const HostTensor& value);
  // Runs on all ranks, to the end. The first error aborts the other
  // ranks' communicators and is returned. After an error only `write`,
  // `read`, `restore` and destruction are accepted, until `restore`.
  Status run(std::string_view entry);
  Status fetch_into(std::string_view entry, std::string_view output, std::span<std::byte> out);
  Result<HostTensor> fetch(std::string_view entry, std::string_view output);
  // Runs `work` in the first process of the world alone (led_work.h), where it may call `read` and `read_into` of this session. The
  // other processes call this at the same time. All get the text of the work, or its error.
  Result<std::string> lead(const std::function<Result<std::string>()>& work);
  // From here on the first process uses the session for all: its calls are made by the others too, within `follow`. Collective, after all
  // values were written.
  Status begin_lead();
  // Whether another process uses this session, so that calls here are wrong but `follow` and those that only report.
  bool is_led() const;
  // Makes the first process' calls until it frees its session. An error: that process is lost.
  Status follow();
  // Ends what the processes do together, with this error in all others; nothing where all ranks live here.
  void end_world(const Status& why);
  void cancel();        // from any thread: the run in progress returns kCancelled
  bool failed() const;  // since the last failed or cancelled run, until restore; any thread
  Status restore();     // after an error: remakes communicators; state must be written again
  Status zero_state();  // all state to zeros
  bool is_shared(std::string_view name) const;  // whether all ranks read the parameter in shared memory
  // Address of a part of the rank at `index` of Program::ranks, in device or host memory; null in the file tier.
  const std::byte* parameter_address(size_t index, const SlotRef& at) const;

  std::vector<MemoryReport> memory();
  std::vector<CommReport> communication() const;
  int64_t allocations() const;  // by run() since creation, on the runtime's own paths
  std::vector<TraceEvent> take_trace();
  // Kernel launches in a run of the entry, on the rank with the most; 0: unknown
  // entry. Fewer than the program's kernels if the backend fuses launches.
  int64_t launches(std::string_view entry) const;
  // Whether runs of the entry are now one launch per rank, since the backend captured it.
  bool is_captured(std::string_view entry) const;
  const Executable& executable() const;
  // The program's tensors of a kind, and an entry's inputs, by name; of a session that is led also those that only other processes have.
  std::map<std::string, TensorType> types(SlotKind kind) const;
  bool has_entry(std::string_view entry) const;
  const TensorType* find_input(std::string_view entry, std::string_view input) const;  // null: there is none
  std::vector<std::string> input_names(std::string_view entry) const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Status make(const LedCalls::Call& call, std::vector<std::byte>& scratch);  // of the first process; `scratch`: for what is read
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
