#include "runtime/host_services.h"

#include <cstddef>
#include <new>

struct tsr_abi_error {
  tessera::Status status;
};

namespace tessera {

namespace {

// The error object for out of memory; never freed.
tsr_abi_error* out_of_memory_error() {
  static tsr_abi_error error{Status::out_of_memory()};
  return &error;
}

// Ignores `host`, so backends may also call it
// without a device (kernel_query), for any registry.
tsr_abi_error* make_error(void*, int32_t code, const char* message) {
  try {
    const bool known =
        code > static_cast<int32_t>(StatusCode::kOk) && code <= static_cast<int32_t>(StatusCode::kInternal);
    const StatusCode status_code = known ? static_cast<StatusCode>(code) : StatusCode::kInternal;
    return new tsr_abi_error{Status(status_code, message != nullptr ? message : "")};
  } catch (...) {
    return out_of_memory_error();
  }
}

}  // namespace

HostServices::HostServices(int32_t threads, void (*log)(void*, int32_t, const char*), void* log_context,
                           const HostHooks& hooks)
    : hooks_(hooks),
      pool_(threads, [given = hooks](int32_t worker) { given.started("kernels", worker); }),
      log_(log),
      log_context_(log_context) {
  api_.struct_size = sizeof(tsr_host_api);
  api_.host = this;
  api_.make_error = make_error;
  api_.log = [](void* host, int32_t level, const char* message) {
    static_cast<HostServices*>(host)->log(level, message);
  };
  api_.parallel_for = [](void* host, int64_t tasks, void (*body)(void*, int64_t), void* context) {
    static_cast<HostServices*>(host)->pool_.parallel_for(tasks, body, context);
  };
  api_.thread_count = [](void* host) { return static_cast<HostServices*>(host)->pool_.thread_count(); };
  api_.take_scratch = [](void* host, size_t bytes) {
    return static_cast<HostServices*>(host)->scratch_.take(bytes);
  };
  api_.give_scratch = [](void* host, void* memory) {
    static_cast<HostServices*>(host)->scratch_.give(memory);
  };
  if (hooks.allocate != nullptr)
    api_.arena_allocate = [](void* host, size_t bytes, size_t alignment) {
      const HostHooks& given = static_cast<HostServices*>(host)->hooks_.get();
      return given.allocate(given.context, bytes, alignment);
    };
  api_.arena_free = [](void* host, void* memory, size_t bytes) {
    const HostHooks& given = static_cast<HostServices*>(host)->hooks_.get();
    given.deallocate(given.context, memory, bytes);
  };
  api_.thread_started = [](void* host, const char* role, int32_t number) {
    static_cast<HostServices*>(host)->hooks_.get().started(role, number);
  };
}

Status take_error(tsr_abi_error* error) {
  if (error == nullptr) return {};
  Status status = error->status;
  if (error != out_of_memory_error()) delete error;
  return status;
}

bool has_flag(const tsr_backend_api& api, uint32_t flag) {
  return api.struct_size >= offsetof(tsr_backend_api, flags) + sizeof(api.flags) && (api.flags & flag) != 0;
}

}  // namespace tessera
