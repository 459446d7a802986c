// BackendRegistry: the backends of a runtime. Built-in ones are given as entry functions; plugins
// are dlopened from the plugin path on first use. An absent plugin is information, not an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/host_hooks.h"

namespace tessera {

struct RegistryOptions {
  std::vector<tsr_backend_entry> built_in;
  std::string plugin_path;  // folder of libtessera_<name>.so; empty: next to libtessera
  int32_t threads = 0;      // of the shared pool; 0: the size of the cpuset
  // Log records, from any thread. May be empty.
  void (*log)(void* context, int32_t level, const char* message) = nullptr;
  void* log_context = nullptr;
  HostHooks hooks;
};

class CoreArbiter;
class DeviceRunLock;

struct BackendInfo {
  std::string name;
  bool available = false;
  std::string reason;  // reason of absence, in one line
  int32_t device_count = 0;
  std::vector<std::string> devices;
};

class BackendRegistry {
 public:
  explicit BackendRegistry(RegistryOptions options);
  ~BackendRegistry();
  BackendRegistry(const BackendRegistry&) = delete;
  BackendRegistry& operator=(const BackendRegistry&) = delete;

  // Loads the plugin on first use; kNotFound or kUnsupported with the reason.
  Result<const tsr_backend_api*> find(std::string_view name);
  std::vector<BackendInfo> list();   // built-ins and every plugin known by name, present or not
  const tsr_host_api& host() const;  // with this registry's pool and log
  DeviceRunLock& run_lock();
  std::shared_ptr<CoreArbiter> arbiter() const;
  // Devices opened later take turns with those of `other`.
  void join_arbiter(const BackendRegistry& other);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
