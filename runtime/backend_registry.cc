#include "runtime/backend_registry.h"

#include <dlfcn.h>

#include <cstddef>
#include <mutex>

#include "graph/base/text.h"
#include "runtime/core_arbiter.h"
#include "runtime/device_run_lock.h"
#include "runtime/host_services.h"
#include "runtime/plugin_file.h"

namespace tessera {

namespace {

constexpr int32_t kAbiVersion = 1;
// Plugins known by name; others are loaded when requested.
constexpr std::string_view kPlugins[] = {"cuda"};

// Everything up to the optional capture functions must be there.
constexpr size_t kRequiredTableBytes = offsetof(tsr_backend_api, capture_begin);

Status check_table(const tsr_backend_api* api, std::string_view name) {
  if (api == nullptr)
    return Status(
        StatusCode::kUnsupported,
        format("backend '{}' speaks none of this host's ABI versions (wanted {})", name, kAbiVersion));
  if (api->struct_size < kRequiredTableBytes)
    return Status(
        StatusCode::kUnsupported,
        format("backend '{}' has a table of {} bytes, at least {} are required; "
               "build the plugin from the same release as the library",
               name, static_cast<uint64_t>(api->struct_size), static_cast<uint64_t>(kRequiredTableBytes)));
  if (api->abi_version != kAbiVersion)
    return Status(
        StatusCode::kUnsupported,
        format("backend '{}' has ABI version {}, {} is required; build the plugin from the same release as "
               "the library",
               name, api->abi_version, kAbiVersion));
  if (api->name == nullptr || (!name.empty() && name != api->name))
    return Status(StatusCode::kUnsupported, format("a plugin named '{}' was wanted, it calls itself '{}'",
                                                   name, api->name ? api->name : ""));
  return {};
}

bool is_name(std::string_view name) {
  if (name.empty()) return false;
  for (const char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  return true;
}

}  // namespace

struct BackendRegistry::Impl {
  struct Entry {
    std::string name;
    const tsr_backend_api* api = nullptr;
    Status status;  // the reason it cannot be used
  };

  explicit Impl(RegistryOptions given)
      : options(std::move(given)),
        services(options.threads, options.log, options.log_context, options.hooks) {}

  RegistryOptions options;
  HostServices services;
  DeviceRunLock run_lock;
  mutable std::mutex mutex;
  std::shared_ptr<CoreArbiter> arbiter = std::make_shared<CoreArbiter>();  // guarded by `mutex`
  std::vector<Entry> entries;  // guarded by `mutex`

  void add_built_in(tsr_backend_entry entry) {
    const tsr_backend_api* api = entry(&services.api());
    Entry row;
    row.name = api != nullptr && api->name != nullptr ? api->name : "?";
    row.status = check_table(api, "");
    if (row.status.ok()) accept(row, api);
    entries.push_back(std::move(row));
  }

  static void accept(Entry& row, const tsr_backend_api* api) {
    if (const char* reason = api->unavailable_reason ? api->unavailable_reason() : nullptr; reason != nullptr)
      row.status = Status(StatusCode::kUnsupported, format("backend '{}': {}", row.name, reason));
    else
      row.api = api;
  }

  // Requires `mutex`. Loads each name at most once; an absent plugin stays absent for this registry.
  const Entry& entry(std::string_view name) {
    for (const Entry& row : entries)
      if (row.name == name) return row;
    Entry row;
    row.name = std::string(name);
    row.status = load(row);
    if (row.status.ok())
      services.log(1, format("backend '{}' loaded", name).c_str());
    else
      services.log(1, std::string(row.status.message()).c_str());
    return entries.emplace_back(std::move(row));
  }

  Status load(Entry& row) {
    const std::string file = format("libtessera_{}.so", row.name);
    TSR_ASSIGN_OR_RETURN(const std::string path, find_plugin_file(options.plugin_path, row.name));
    // Never closed: a plugin may leave threads and driver state behind.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return Status(StatusCode::kUnsupported,
                    format("{} cannot be loaded: {}", file, std::string(dlerror())));
    const auto enter = reinterpret_cast<tsr_backend_entry>(dlsym(library, TSR_BACKEND_ENTRY_SYMBOL));
    if (enter == nullptr)
      return Status(StatusCode::kUnsupported, format("{} has no symbol {}; it is no plugin of this ABI", file,
                                                     TSR_BACKEND_ENTRY_SYMBOL));
    const tsr_backend_api* api = enter(&services.api());
    TSR_RETURN_IF_ERROR(check_table(api, row.name));
    accept(row, api);
    return row.status;
  }
};

BackendRegistry::BackendRegistry(RegistryOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  for (tsr_backend_entry entry : impl_->options.built_in) impl_->add_built_in(entry);
}

BackendRegistry::~BackendRegistry() = default;

const tsr_host_api& BackendRegistry::host() const { return impl_->services.api(); }
DeviceRunLock& BackendRegistry::run_lock() { return impl_->run_lock; }

std::shared_ptr<CoreArbiter> BackendRegistry::arbiter() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->arbiter;
}

void BackendRegistry::join_arbiter(const BackendRegistry& other) {
  std::shared_ptr<CoreArbiter> joined = other.arbiter();
  const std::lock_guard lock(impl_->mutex);
  impl_->arbiter = std::move(joined);
}

Result<const tsr_backend_api*> BackendRegistry::find(std::string_view name) {
  if (!is_name(name))
    return Status(StatusCode::kInvalidArgument,
                  format("'{}' is no backend name (lower-case letters, digits and _)", name));
  const std::lock_guard lock(impl_->mutex);
  const Impl::Entry& row = impl_->entry(name);
  if (row.api != nullptr) return row.api;
  if (row.status.code() != StatusCode::kNotFound) return row.status;
  std::vector<std::string> usable;
  for (const Impl::Entry& other : impl_->entries)
    if (other.api != nullptr) usable.push_back(other.name);
  return Status(row.status.code(),
                format("no backend '{}': {}; here: {}, as in '{}:2'", name, row.status.message(), join(usable, ", "),
                       usable.empty() ? "cpu" : usable.front()));
}

std::vector<BackendInfo> BackendRegistry::list() {
  const std::lock_guard lock(impl_->mutex);
  for (const std::string_view name : kPlugins) (void)impl_->entry(name);
  std::vector<BackendInfo> found;
  for (const Impl::Entry& row : impl_->entries) {
    BackendInfo backend;
    backend.name = row.name;
    backend.available = row.api != nullptr;
    backend.reason = std::string(row.status.message());
    if (row.api != nullptr) {
      backend.device_count = row.api->device_count();
      // Virtual devices are equal, so one represents them.
      const int32_t listed = backend.device_count == INT32_MAX ? 1 : backend.device_count;
      for (int32_t ordinal = 0; ordinal < listed; ++ordinal) {
        tsr_abi_device_info device{};
        device.struct_size = sizeof(device);
        if (Status status = take_error(row.api->device_info(ordinal, &device)); !status.ok())
          backend.devices.push_back(status.to_string());
        else
          backend.devices.emplace_back(device.name);
      }
    }
    found.push_back(std::move(backend));
  }
  return found;
}

}  // namespace tessera
