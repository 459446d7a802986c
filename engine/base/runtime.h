// Runtime: the host program's configuration: backends, the kernel thread pool, the
// log queue. Any thread. Shared by its devices, sessions, trainers and generators.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "graph/base/cancellation.h"
#include "runtime/backend_registry.h"
#include "runtime/device_set.h"
#include "runtime/transport.h"

namespace tessera {

struct LogRecord {
  int32_t level = 0;  // 0 debug .. 3 error
  std::string text;
};

// LogSink: receives each record when it is added. `release` may be nullptr; it is called after the last `call`.
struct LogSink {
  void (*call)(void* context, int32_t level, const char* text) = nullptr;
  void (*release)(void* context) = nullptr;
  void* context = nullptr;

  void end() const {
    if (release != nullptr) release(context);
  }
};

// Bounded: drops its oldest record when full. Any thread.
class LogQueue {
 public:
  LogQueue(int32_t lowest_level, size_t capacity) : lowest_level_(lowest_level), capacity_(capacity) {}
  ~LogQueue() { sink_.end(); }
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Queues the record and calls the sink in this thread. Records added within a sink are only queued.
  void add(int32_t level, std::string_view text);
  // Replaces the sink; the previous one is not called after this returns. kFailedPrecondition within a sink.
  Status set_sink(const LogSink& sink);
  // Returns the oldest record, and removes it if its text is below `room` bytes.
  std::optional<LogRecord> take(size_t room);

 private:
  const int32_t lowest_level_;
  const size_t capacity_;
  std::mutex mutex_;  // guards records_
  std::deque<LogRecord> records_;
  std::mutex sink_mutex_;
  LogSink sink_;
};

class Runtime {
 public:
  // Takes ownership of `hooks`, also on failure.
  static Result<std::shared_ptr<Runtime>> create(const Options& options, const HostHooks& hooks = {});

  // kFailedPrecondition in a forked child: the pool's threads exist only in the parent.
  Status check_process() const;
  bool in_creating_process() const;

  // A random seed from 0 to 2^53 - 1, exact in every JSON reader.
  static int64_t draw_seed();

  // Opens devices of this process, with the profile named `profile` (engine/base/device_profiles.h); empty: the runtime's.
  Result<std::shared_ptr<DeviceSet>> open_devices(std::string_view text, std::string_view profile = {},
                                                  DeviceShare share = {});
  // Opens devices of this process as a part of those of all that run with it. Collective.
  Result<std::shared_ptr<DeviceSet>> open_world_devices(std::string_view text, std::string_view profile = {});
  // kUnsupported, for what is of one process, where this one runs with others.
  Status check_alone(std::string_view what) const;
  // To the other processes that a launcher started with this one; null: it runs alone.
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  // Whether a launcher started this process as another than the first, known without a runtime.
  static bool is_launched_after_first();
  bool is_first_process() const { return transport_ == nullptr || transport_->process() == 0; }
  // The default folder of profiles; empty: none.
  const std::string& cache_folder() const { return cache_folder_; }
  BackendRegistry& registry() { return *registry_; }
  const BackendRegistry& registry() const { return *registry_; }
  // Turns of inference and training on the cores: option inference_share, 0 to 1; without options no turns.
  Status set_share(const Options& options);
  // Handles made later take turns with those of `other`.
  Status join_share(const Runtime& other);
  // Raised to end long calls in progress, which heed it in a CancelScope.
  CancelSignal& cancel_signal() { return cancel_signal_; }
  LogQueue& log() { return log_; }

 private:
  Runtime(int32_t lowest_level, size_t log_capacity) : log_(lowest_level, log_capacity) {}
  Result<std::shared_ptr<DeviceSet>> open(std::string_view text, std::string_view profile, DeviceShare share,
                                          std::shared_ptr<Transport> transport);
  // Joins the processes that a launcher started, or those of the program's communicator.
  Status join_world(const std::string& plugin_path, const TransportOptions& options);
  int64_t process_ = 0;
  std::string profile_, cache_folder_;
  LogQueue log_;
  CancelSignal cancel_signal_;
  std::unique_ptr<BackendRegistry> registry_;
  std::shared_ptr<Transport> transport_;  // after the registry, whose log it uses
};

std::string backends_json(Runtime& runtime);
// The text of tsr_runtime_world.
std::string world_json(const Runtime& runtime);
// The text of tsr_runtime_share.
std::string share_json(const Runtime& runtime);

}  // namespace tessera
