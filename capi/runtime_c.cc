// tsr_runtime, tsr_devices. In a forked child, frees have no effect: its threads stayed with the parent.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"
#include "engine/program/report.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_runtime_new(const tsr_options* options, tsr_runtime** out_runtime) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_runtime, "out_runtime"}}));
    TSR_ASSIGN_OR_RETURN(auto runtime, Runtime::create(options ? options->value : Options{}));
    *out_runtime = new tsr_runtime{std::move(runtime)};
    return {};
  });
}

tsr_status* tsr_runtime_new_with_hooks(const tsr_options* options, const tsr_hooks* hooks,
                                       tsr_runtime** out_runtime) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{hooks, "hooks"}}));
    TSR_RETURN_IF_ERROR(check_struct(hooks));
    const HostHooks taken{hooks->allocate, hooks->deallocate, hooks->thread_started, hooks->release,
                          hooks->context};
    HeldHooks held(taken);
    TSR_ASSIGN_OR_RETURN(const tsr_hooks given, copy_struct<tsr_hooks>(hooks));
    TSR_RETURN_IF_ERROR(required({{out_runtime, "out_runtime"}}));
    if ((given.allocate == nullptr) != (given.deallocate == nullptr))
      return Status(StatusCode::kInvalidArgument,
                    "tsr_hooks has one of allocate and deallocate, wanted both or none");
    held.hand_over();
    TSR_ASSIGN_OR_RETURN(auto runtime, Runtime::create(options ? options->value : Options{}, taken));
    *out_runtime = new tsr_runtime{std::move(runtime)};
    return {};
  });
}

tsr_status* tsr_runtime_backends(const tsr_runtime* runtime, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    return give_text(backends_json(*runtime->value), out_text);
  });
}

tsr_status* tsr_runtime_next_log(tsr_runtime* runtime, int32_t* out_level, char* buffer, size_t capacity,
                                 size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_size, "out_size"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    const std::optional<LogRecord> record = runtime->value->log().take(buffer ? capacity : 0);
    if (!record) {
      *out_size = 0;
      if (buffer && capacity > 0) *buffer = '\0';
      return {};
    }
    if (out_level) *out_level = record->level;
    return put_text(record->text, buffer, capacity, out_size);
  });
}

tsr_status* tsr_runtime_set_log(tsr_runtime* runtime,
                                void (*log)(void* context, int32_t level, const char* text),
                                void (*release)(void* context), void* context) {
  Status status = catch_status([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    return runtime->value->log().set_sink({log, release, context});
  });
  if (!status.ok() && release) release(context);
  return to_c(std::move(status));
}

tsr_status* tsr_runtime_set_share(tsr_runtime* runtime, const tsr_options* options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}}));
    return runtime->value->set_share(options ? options->value : Options{});
  });
}

tsr_status* tsr_runtime_join_share(tsr_runtime* runtime, const tsr_runtime* other) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {other, "other"}}));
    return runtime->value->join_share(*other->value);
  });
}

tsr_status* tsr_runtime_share(const tsr_runtime* runtime, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    return give_text(share_json(*runtime->value), out_text);
  });
}

tsr_status* tsr_runtime_world(const tsr_runtime* runtime, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    return give_text(world_json(*runtime->value), out_text);
  });
}

// Signal handlers may call it: no lock, no allocation.
void tsr_runtime_cancel(tsr_runtime* runtime) {
  if (runtime) runtime->value->cancel_signal().raise();
}

void tsr_runtime_free(tsr_runtime* runtime) {
  if (runtime && runtime->value->in_creating_process()) delete runtime;
}

tsr_status* tsr_devices_open(tsr_runtime* runtime, const char* text, tsr_devices** out_devices) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {text, "text"}, {out_devices, "out_devices"}}));
    TSR_ASSIGN_OR_RETURN(auto devices, runtime->value->open_world_devices(text));
    *out_devices = new tsr_devices{runtime->value, std::move(devices)};
    return {};
  });
}

int32_t tsr_devices_count(const tsr_devices* devices) { return devices ? devices->value->size() : 0; }

tsr_status* tsr_devices_info(const tsr_devices* devices, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{devices, "devices"}, {out_text, "out_text"}}));
    return give_text(devices_json(*devices->value), out_text);
  });
}

void tsr_devices_free(tsr_devices* devices) {
  if (devices && devices->runtime->in_creating_process()) delete devices;
}
