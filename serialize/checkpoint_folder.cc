#include "serialize/checkpoint_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/envelope.h"
#include "serialize/file_permissions.h"
#include "serialize/temporary_names.h"

namespace tessera {

namespace {

constexpr std::string_view kReplaced = "replaced", kManifest = "manifest", kShard = "shard-";
constexpr int kMostLevels = 4;  // nesting of replaced checkpoints: two interrupted saves leave two

// OpenFolder: an open folder, not following links.
struct OpenFolder {
  explicit OpenFolder(const std::string& path, int within = AT_FDCWD)
      : descriptor(openat(within, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {}
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  ~OpenFolder() {
    if (descriptor >= 0) ::close(descriptor);
  }
  const int descriptor;
};

bool exists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// "manifest", "shard-00000", and the temporary names that a killed save may leave.
bool is_ours(std::string_view entry) {
  std::string_view rest = entry;
  if (entry.starts_with(kManifest)) {
    rest.remove_prefix(kManifest.size());
  } else if (entry.starts_with(kShard)) {
    rest.remove_prefix(kShard.size());
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits < 5) return false;
    rest.remove_prefix(digits);
  } else {
    return false;
  }
  return rest.empty() || (rest.starts_with(kTemporary) && is_temporary_number(rest.substr(kTemporary.size())));
}

// Whether a regular file begins like our manifests, as far as it goes.
bool is_manifest(int folder) {
  const int file = openat(folder, kManifest.data(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  char begin[8];
  const ssize_t got = ::read(file, begin, sizeof begin);
  close(file);
  return got >= 0 && kCheckpointMagic.starts_with(std::string_view(begin, static_cast<size_t>(got)));
}

Result<std::vector<std::string>> entries_of(int folder, const std::string& path) {
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = again < 0 ? nullptr : fdopendir(again);
  if (stream == nullptr) {
    Status failed = io_error(path, "cannot list the folder");
    if (again >= 0) close(again);
    return failed;
  }
  std::vector<std::string> entries;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") entries.push_back(name);
  }
  closedir(stream);
  std::ranges::sort(entries);
  return entries;
}

Status foreign(const std::string& folder, std::string_view entry, std::string_view why) {
  return Status(kExists,
                format("{}: not overwritten, since '{}' in it {}; choose another folder", folder, entry, why));
}

// The entries of a checkpoint's folder; kExists for a foreign entry.
Result<std::vector<std::string>> own_entries(int folder, const std::string& path, int levels) {
  TSR_ASSIGN_OR_RETURN(std::vector<std::string> entries, entries_of(folder, path));
  for (const std::string& entry : entries) {
    struct stat info {};
    if (fstatat(folder, entry.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return io_error(path + "/" + entry, "cannot look at");
    if (entry == kReplaced && S_ISDIR(info.st_mode) && levels > 1) {
      const OpenFolder replaced(entry, folder);
      if (replaced.descriptor < 0) return io_error(path + "/" + entry, "cannot open the folder");
      TSR_RETURN_IF_ERROR(own_entries(replaced.descriptor, path + "/" + entry, levels - 1).status());
    } else if (!is_ours(entry)) {
      return foreign(path, entry, "is no part of a checkpoint");
    } else if (!S_ISREG(info.st_mode)) {
      return foreign(path, entry, "is no file");
    } else if (entry == kManifest && !is_manifest(folder)) {
      return foreign(path, entry, "is no manifest of a checkpoint");
    }
  }
  return entries;
}

// Removes the contents of a folder accepted by own_entries.
Status remove_contents(int folder, const std::string& path, const std::vector<std::string>& entries,
                       int levels) {
  for (const std::string& entry : entries) {
    int flags = 0;
    if (entry == kReplaced) {
      flags = AT_REMOVEDIR;
      const OpenFolder replaced(entry, folder);
      if (replaced.descriptor < 0) return io_error(path + "/" + entry, "cannot open the folder");
      TSR_ASSIGN_OR_RETURN(const std::vector<std::string> inner,
                           own_entries(replaced.descriptor, path + "/" + entry, levels - 1));
      TSR_RETURN_IF_ERROR(remove_contents(replaced.descriptor, path + "/" + entry, inner, levels - 1));
    }
    if (unlinkat(folder, entry.c_str(), flags) != 0) return io_error(path + "/" + entry, "cannot remove");
  }
  return {};
}

Status remove_checkpoint(const std::string& path) {
  if (!exists(path)) return {};
  const OpenFolder folder(path);
  if (folder.descriptor < 0) return io_error(path, "cannot open the folder");
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> entries,
                       own_entries(folder.descriptor, path, kMostLevels));
  TSR_RETURN_IF_ERROR(remove_contents(folder.descriptor, path, entries, kMostLevels));
  return rmdir(path.c_str()) == 0 ? Status() : io_error(path, "cannot remove");
}

Status rename_folder(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? Status() : io_error(from, "cannot rename to " + to);
}

Status taken(const std::string& path) {
  return Status(kBusy,
                format("{}: another process is saving this checkpoint", path));
}

// File systems without locks (ENOSYS, ENOLCK, ENOTSUP): continue without.
bool is_locked_by_another(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

std::string shard_name(size_t index) {
  std::string digits = std::to_string(index);
  return std::string(kShard) + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

std::string real_folder(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (char* resolved = realpath(folder.c_str(), nullptr)) {
    folder = resolved;
    std::free(resolved);
  }
  return folder;
}

std::string readable_folder(const std::string& folder) {
  if (exists(folder)) return folder;
  const std::string saving = folder + ".saving";
  if (is_folder(saving) && is_folder(saving + "/" + std::string(kReplaced))) return saving;
  return is_folder(folder + ".previous") ? folder + ".previous" : folder;
}

Status check_replaceable(const std::string& folder) {
  if (!exists(folder)) return {};
  const OpenFolder opened(folder);
  if (opened.descriptor < 0) return io_error(folder, "cannot open the folder");
  return own_entries(opened.descriptor, folder, kMostLevels).status();
}

Status finish_cut_save(const std::string& folder) {
  const std::string saving = folder + ".saving";
  if (exists(folder) || !is_folder(saving) || !is_folder(saving + "/" + std::string(kReplaced))) return {};
  const OpenFolder opened(saving);
  if (opened.descriptor < 0) return io_error(saving, "cannot open the folder");
  if (is_locked_by_another(opened.descriptor)) return taken(saving);
  TSR_RETURN_IF_ERROR(check_replaceable(saving));
  TSR_RETURN_IF_ERROR(rename_folder(saving, folder));
  TSR_RETURN_IF_ERROR(sync_folder(parent_folder(folder)));
  return remove_checkpoint(folder + "/" + std::string(kReplaced));
}

SavingFolder::~SavingFolder() {
  if (descriptor_ < 0) return;
  if (!is_in_place_) (void)remove_checkpoint(path_);
  ::close(descriptor_);
}

Status SavingFolder::open_empty() {
  const mode_t mode = exists(folder_) ? 0700 : 0777;  // until it gets the old folder's permissions
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (mkdir(path_.c_str(), mode) != 0 && errno != EEXIST) return io_error(path_, "cannot make the folder");
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor_ < 0) return io_error(path_, "cannot open the folder");
    if (is_locked_by_another(descriptor_)) {
      ::close(std::exchange(descriptor_, -1));
      return taken(path_);
    }
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> entries, entries_of(descriptor_, path_));
    if (entries.empty()) return {};
    TSR_RETURN_IF_ERROR(remove_checkpoint(path_));  // left by a killed save
    ::close(std::exchange(descriptor_, -1));
  }
  return Status(kBusy, format("{}: cannot be emptied", path_));
}

Status SavingFolder::put_in_place() {
  const std::string parent = parent_folder(folder_), replaced = path_ + "/" + std::string(kReplaced);
  if (!exists(folder_)) {
    TSR_RETURN_IF_ERROR(rename_folder(path_, folder_));
    is_in_place_ = true;
    return sync_folder(parent);
  }
  TSR_RETURN_IF_ERROR(check_replaceable(folder_));
  keep_permissions_of_folder(folder_, path_);
  if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) == 0) {
    is_in_place_ = true;
    TSR_RETURN_IF_ERROR(sync_folder(parent));
    return remove_checkpoint(path_);
  }
  if (errno != ENOSYS && errno != EINVAL && errno != ENOTSUP)
    return io_error(folder_, "cannot exchange with the new checkpoint");
  TSR_RETURN_IF_ERROR(rename_folder(folder_, replaced));
  if (Status renamed = rename_folder(path_, folder_); !renamed.ok()) {
    (void)rename_folder(replaced, folder_);
    return renamed;
  }
  is_in_place_ = true;
  TSR_RETURN_IF_ERROR(sync_folder(parent));
  return remove_checkpoint(folder_ + "/" + std::string(kReplaced));
}

}  // namespace tessera
