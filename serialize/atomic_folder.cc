#include "serialize/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/file_permissions.h"
#include "serialize/temporary_names.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void remove_folder(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// The target of `path`, which may be new.
Result<std::string> target_of(std::string path, const AtomicFolder::MayReplace& may_replace) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the name of the folder to write is empty");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENAMETOOLONG) return io_error(path, "cannot create");
    return path;
  }
  if (!S_ISDIR(info.st_mode))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: is a file, wanted the name of a folder to write", path));
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  if (error) return Status(StatusCode::kIo, format("{}: cannot resolve: {}", path, error.message()));
  const bool is_empty = fs::is_empty(resolved, error);
  if (error) return Status(StatusCode::kIo, format("{}: cannot list: {}", path, error.message()));
  if (!is_empty) TSR_RETURN_IF_ERROR(may_replace(resolved.string()));
  return resolved.string();
}

// Removes folders whose lock is free, left by killed writers.
void remove_leftovers(const std::string& prefix) {
  for_each_leftover(prefix, [](const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) remove_folder(path);
    ::close(descriptor);
  });
}

}  // namespace

Result<AtomicFolder> AtomicFolder::create(const std::string& path_as_given, const MayReplace& may_replace) {
  TSR_ASSIGN_OR_RETURN(const std::string path, target_of(path_as_given, may_replace));
  const std::string prefix = temporary_prefix(path);
  remove_leftovers(prefix);
  const bool is_new = !FilePermissions::of(path);
  for (int64_t attempt = 0; attempt < 100; ++attempt) {
    const std::string temporary = format("{}{}-{}", prefix, static_cast<int64_t>(getpid()), attempt);
    if (mkdir(temporary.c_str(), is_new ? 0777 : 0700) != 0) {
      if (errno == EEXIST) continue;
      return io_error(path, "cannot create a folder next to it");
    }
    const int descriptor = ::open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) continue;  // another process removed it as a leftover before it was locked
    const bool lost = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_same_file(descriptor, temporary)) return AtomicFolder(path, temporary, descriptor, may_replace);
    ::close(descriptor);
  }
  return Status(StatusCode::kIo, format("{}: 100 temporary folders next to it were taken by others", path));
}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      may_replace_(std::move(other.may_replace_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFolder::~AtomicFolder() {
  if (descriptor_ < 0) return;
  remove_folder(temporary_);
  ::close(descriptor_);
}

Status AtomicFolder::commit() {
  std::error_code error;
  if (fs::is_directory(path_, error)) {
    // Files may have been added since `create`.
    if (!fs::is_empty(path_, error) && !error) TSR_RETURN_IF_ERROR(may_replace_(path_));
    keep_permissions_of_folder(path_, temporary_);
  }
  TSR_RETURN_IF_ERROR(sync_folder(temporary_));
  // An absent or empty folder is replaced by renaming, others by RENAME_EXCHANGE, so that the path always exists. Where the file
  // system lacks it there are two renames, between which the path is absent.
  std::string old;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) return io_error(path_, "cannot rename onto it");
    if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      old = temporary_;
    } else {
      old = temporary_ + "-0";  // not a name of leftovers: no other writer removes the old contents
      if (::rename(path_.c_str(), old.c_str()) != 0) return io_error(path_, "cannot rename");
      if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        Status status = io_error(path_, "cannot rename onto it");
        (void)::rename(old.c_str(), path_.c_str());
        return status;
      }
    }
  }
  ::close(std::exchange(descriptor_, -1));
  if (!old.empty()) remove_folder(old);
  return sync_folder(parent_folder(path_));
}

}  // namespace tessera
