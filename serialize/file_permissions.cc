#include "serialize/file_permissions.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace tessera {

namespace {

constexpr mode_t kAll = 0777;  // without set-user-id and the like

void keep(const std::string& old, const std::string& replacement, int levels) {
  const std::optional<FilePermissions> folder = FilePermissions::of(old);
  const int descriptor = ::open(replacement.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return;
  DIR* const stream = fdopendir(descriptor);
  if (stream == nullptr) {
    ::close(descriptor);
    return;
  }
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    struct stat found {};
    if (name == "." || name == ".." || fstatat(descriptor, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (S_ISDIR(found.st_mode) && levels > 1) keep(old + "/" + name, replacement + "/" + name, levels - 1);
    if (!S_ISREG(found.st_mode)) continue;
    if (const auto file = FilePermissions::of(old + "/" + name)) file->apply_in(descriptor, name);
  }
  if (folder) folder->apply(descriptor);
  closedir(stream);
}

}  // namespace

std::optional<FilePermissions> FilePermissions::of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return FilePermissions(found);
}

void FilePermissions::apply(int descriptor) const {
  struct stat now {};
  if (::fstat(descriptor, &now) != 0) return;
  mode_t mode = mode_ & kAll;
  if ((now.st_uid != owner_ || now.st_gid != group_) && ::fchown(descriptor, owner_, group_) != 0 &&
      now.st_gid != group_ && ::fchown(descriptor, static_cast<uid_t>(-1), group_) != 0)
    mode = (mode & ~mode_t{070}) | (mode & 07) << 3;
  (void)::fchmod(descriptor, mode);  // some file systems have no modes
}

void FilePermissions::apply_in(int folder, const std::string& name) const {
  const int descriptor = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  apply(descriptor);
  ::close(descriptor);
}

void keep_permissions_of_folder(const std::string& old, const std::string& replacement) {
  keep(old, replacement, 3);
}

}  // namespace tessera
