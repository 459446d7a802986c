#include "runtime/plugin_file.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "graph/base/text.h"

namespace tessera {

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
}

// The absolute path of the file mapped at `address`; empty if unknown.
std::string mapped_file_at(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const auto begin = static_cast<uintptr_t>(std::strtoull(line.c_str(), &end, 16));
    if (*end != '-') continue;
    const auto after = static_cast<uintptr_t>(std::strtoull(end + 1, nullptr, 16));
    if (address < begin || address >= after) continue;
    const size_t path = line.find('/');
    return path == std::string::npos ? "" : line.substr(path);
  }
  return {};
}

// The owner's private group has the owner's number.
bool is_writable_by_others(const struct stat& found) {
  const bool group = (found.st_mode & S_IWGRP) != 0 && found.st_gid != 0 && found.st_gid != found.st_uid;
  return group || (found.st_mode & S_IWOTH) != 0;
}

Status check_owned(const std::string& path, std::string_view what) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0)
    return Status(StatusCode::kIo, format("{}: cannot stat: {}", path, std::strerror(errno)));
  if (!is_writable_by_others(found)) return {};
  return Status(StatusCode::kUnsupported,
                format("{} is not loaded: the {} can be written by others than its owner (chmod go-w {})",
                       path, what, path));
}

}  // namespace

std::string folder_of_this_library() {
  const auto* const here = reinterpret_cast<const void*>(&folder_of_this_library);
  Dl_info info{};
  // The name it was loaded under; for a program,
  // the first word of its command, in any folder.
  if (dladdr(here, &info) != 0 && info.dli_fname != nullptr && info.dli_fname[0] == '/')
    return folder_of(info.dli_fname);
  return folder_of(mapped_file_at(reinterpret_cast<uintptr_t>(here)));
}

Result<std::string> find_plugin_file(std::string_view folder, std::string_view name) {
  const std::string file = format("libtessera_{}.so", name);
  const std::string searched = folder.empty() ? folder_of_this_library() : std::string(folder);
  if (searched.empty())
    return Status(
        StatusCode::kNotFound,
        format("{} is not searched: the system does not say where this library is; name the folder with "
               "plugin_path or TESSERA_PLUGIN_PATH",
               file));
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath((searched + "/" + file).c_str(), nullptr),
                                                        std::free);
  if (!resolved) return Status(StatusCode::kNotFound, format("{} not found in {}", file, searched));
  const std::string path = resolved.get();
  TSR_RETURN_IF_ERROR(check_owned(path, "file"));
  TSR_RETURN_IF_ERROR(check_owned(folder_of(path), "folder"));
  TSR_RETURN_IF_ERROR(check_owned(searched, "folder"));
  return path;
}

}  // namespace tessera
