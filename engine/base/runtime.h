// Runtime: the host program's configuration, made once: backends, the thread pool of their kernels, the log
// queue. Any thread. Shared by the devices, sessions, trainers and generators made from it.
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

namespace tessera {

struct LogRecord {
  int32_t level = 0;  // 0 debug .. 3 error
  std::string text;
};

// Who is told each record as it is made. `release` may be nullptr; it is called once `call` is not called any more.
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

  // Queues the record and tells the sink, in this thread. What a sink itself adds is queued alone.
  void add(int32_t level, std::string_view text);
  // Replaces the sink: once this returns, the one before is not called any more. kFailedPrecondition within a sink.
  Status set_sink(const LogSink& sink);
  // Returns the oldest record. It leaves the queue only when its text is below `room` bytes.
  std::optional<LogRecord> take(size_t room);

 private:
  const int32_t lowest_level_;
  const size_t capacity_;
  std::mutex mutex_;  // of records_
  std::deque<LogRecord> records_;
  std::mutex sink_mutex_;
  LogSink sink_;
};

class Runtime {
 public:
  // Takes `hooks` over, also when it fails.
  static Result<std::shared_ptr<Runtime>> create(const Options& options, const HostHooks& hooks = {});

  // kFailedPrecondition in a forked child: the pool's threads exist only in the parent.
  Status check_process() const;
  bool in_creating_process() const;

  // A seed that nobody chose: from 0 to 2^53 - 1, which every reader of JSON takes exactly.
  static int64_t draw_seed();

  // With the profile that `profile` names (engine/base/device_profiles.h); nothing: the runtime's own.
  Result<std::shared_ptr<DeviceSet>> open_devices(std::string_view text, std::string_view profile = {},
                                                  DeviceShare share = {});
  // The default folder of profiles; empty when there is none.
  const std::string& cache_folder() const { return cache_folder_; }
  BackendRegistry& registry() { return *registry_; }
  // Ends the long calls in progress when raised; they heed it in a CancelScope.
  CancelSignal& cancel_signal() { return cancel_signal_; }
  LogQueue& log() { return log_; }

 private:
  Runtime(int32_t lowest_level, size_t log_capacity) : log_(lowest_level, log_capacity) {}
  int64_t process_ = 0;
  std::string profile_, cache_folder_;
  LogQueue log_;
  CancelSignal cancel_signal_;
  std::unique_ptr<BackendRegistry> registry_;
};

std::string backends_json(Runtime& runtime);

}  // namespace tessera
