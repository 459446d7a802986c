#include "runtime/transport_plugin.h"

#include <dlfcn.h>

#include <cstddef>

#include "graph/base/text.h"
#include "runtime/plugin_file.h"

namespace tessera {

namespace {

constexpr int32_t kAbiVersion = 1;
constexpr size_t kRequiredTableBytes = offsetof(tsr_transport_api, idle_seconds) + sizeof(tsr_transport_api::idle_seconds);

}  // namespace

Result<const tsr_transport_api*> load_transport(const std::string& plugin_path, std::string_view name, const tsr_host_api& host) {
  const std::string file = format("libtessera_{}.so", name);
  const auto refused = [&](std::string_view why) { return Status(StatusCode::kUnsupported, format("{}: {}", file, why)); };
  TSR_ASSIGN_OR_RETURN(const std::string path, find_plugin_file(plugin_path, std::string(name)));
  // Never closed: a plugin may leave threads behind. The loader keeps one of each.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refused(dlerror());
  const auto enter = reinterpret_cast<tsr_transport_entry>(dlsym(library, TSR_TRANSPORT_ENTRY_SYMBOL));
  if (enter == nullptr) return refused(format("it has no symbol {}; it is no transport of this ABI", TSR_TRANSPORT_ENTRY_SYMBOL));
  const tsr_transport_api* api = enter(&host);
  if (api == nullptr || api->struct_size < kRequiredTableBytes || api->abi_version != kAbiVersion)
    return refused(format("it speaks none of this library's ABI versions (wanted {}); build it from the same release", kAbiVersion));
  if (api->name == nullptr || name != api->name)
    return refused(format("it calls itself '{}', wanted '{}'", api->name != nullptr ? api->name : "", name));
  if (const char* reason = api->unavailable_reason(); reason != nullptr) return refused(reason);
  return api;
}

}  // namespace tessera
