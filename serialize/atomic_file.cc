#include "serialize/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "graph/base/text.h"
#include "serialize/file_permissions.h"
#include "serialize/temporary_names.h"

namespace tessera {

Status io_error(const std::string& path, std::string_view what) {
  const int error = errno;
  const StatusCode code = error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound
                          : error == ENOMEM                   ? StatusCode::kOutOfMemory
                                                              : StatusCode::kIo;
  return Status(code, format("{}: {}: {}", path, what, std::strerror(error)));
}

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Status sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return io_error(folder, "cannot open the folder");
  // Some file systems cannot sync folders (EINVAL) and need not.
  const bool failed = fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP;
  Status status = failed ? io_error(folder, "cannot sync the folder") : Status();
  ::close(descriptor);
  return status;
}

namespace {

// The target of `path`, which may be new.
Result<std::string> target_of(const std::string& path, bool follows_links) {
  const auto wrong = [&](std::string_view found) {
    return Status(StatusCode::kInvalidArgument,
                  format("{}: {}, wanted the name of a file to write", path, found));
  };
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the name of the file to write is empty");
  struct stat info {};
  if ((follows_links ? ::stat(path.c_str(), &info) : lstat(path.c_str(), &info)) != 0) {
    if (errno == ENAMETOOLONG) return io_error(path, "cannot create");
    return path;  // new, or creating it reports the error
  }
  if (S_ISLNK(info.st_mode)) return path;
  if (S_ISDIR(info.st_mode)) return wrong("is a folder");
  if (!S_ISREG(info.st_mode)) return wrong("is a device, pipe or socket");
  if (!follows_links) return path;
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return io_error(path, "cannot resolve");
  std::string target = resolved;
  std::free(resolved);
  return target;
}

// Removes temporary files whose lock is free, left by killed
// writers. On file systems without locks none is removed.
void remove_leftovers(const std::string& prefix) {
  for_each_leftover(prefix, [](const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return;
    struct stat info {};
    if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
    ::close(descriptor);
  });
}

}  // namespace

bool is_temporary_number(std::string_view rest) {
  const size_t dash = rest.find('-');
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && digits(rest.substr(0, dash)) && digits(rest.substr(dash + 1));
}

std::string temporary_prefix(const std::string& path) {
  constexpr size_t kMostNameBytes = 200;  // of 255
  const size_t slash = path.rfind('/'), name = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(0, name + kMostNameBytes) + std::string(kTemporary);
}

bool is_same_file(int descriptor, const std::string& name) {
  struct stat open_file {
  }, named{};
  return ::fstat(descriptor, &open_file) == 0 && ::stat(name.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

void for_each_leftover(const std::string& prefix,
                       const std::function<void(const std::string& path)>& remove) {
  const std::string folder = parent_folder(prefix), start = prefix.substr(prefix.rfind('/') + 1);
  DIR* const stream = opendir(folder.c_str());
  if (stream == nullptr) return;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(start) && is_temporary_number(name.substr(start.size())))
      remove(folder + "/" + std::string(name));
  }
  closedir(stream);
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const std::string target, target_of(path, true));
  return create_at(target);
}

Result<AtomicFile> AtomicFile::create_derived(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const std::string target, target_of(path, false));
  return create_at(target);
}

Result<AtomicFile> AtomicFile::create_at(const std::string& path) {
  struct stat old {};
  const bool is_new = lstat(path.c_str(), &old) != 0 || !S_ISREG(old.st_mode);
  const std::string prefix = temporary_prefix(path);
  remove_leftovers(prefix);
  int32_t lost_files = 0;
  for (int64_t attempt = 0;; ++attempt) {
    const std::string temporary = format("{}{}-{}", prefix, static_cast<int64_t>(getpid()), attempt);
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_new ? 0666 : 0600);
    if (descriptor < 0) {
      if (errno == EEXIST) continue;
      if (errno == ENOENT)
        return Status(StatusCode::kNotFound, format("{}: there is no folder '{}'; make it first", path, parent_folder(path)));
      return io_error(path, "cannot create a file next to it");
    }
    const bool lost = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_same_file(descriptor, temporary)) return AtomicFile(path, temporary, descriptor);
    ::close(descriptor);  // another process removed it as a leftover before it was locked
    if (++lost_files == 100)
      return Status(
          StatusCode::kIo,
          format("{}: {} temporary files next to it were locked or removed by others", path, lost_files));
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      position_(other.position_),
      sent_begin_(other.sent_begin_),
      sent_end_(other.sent_end_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write_all(std::span<const std::byte> bytes, uint64_t position) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), part, static_cast<off_t>(position));
    if (written < 0) {
      if (errno == EINTR) continue;
      return io_error(path_, "cannot write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    position += static_cast<uint64_t>(written);
  }
  return {};
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  TSR_RETURN_IF_ERROR(write_all(bytes, position_));
  position_ += bytes.size();
  start_writeback();
  return {};
}

// Starts write-back early, so that commit waits less and
// progress is realistic. Errors here reappear in commit.
void AtomicFile::start_writeback() {
  constexpr uint64_t kPartBytes = uint64_t{32} << 20;
  if (position_ < sent_end_ + kPartBytes) return;
  const auto send = [this](uint64_t begin, uint64_t end, unsigned flags) {
    (void)sync_file_range(descriptor_, static_cast<off64_t>(begin), static_cast<off64_t>(end - begin), flags);
  };
  send(sent_end_, position_, SYNC_FILE_RANGE_WRITE);
  if (sent_end_ > sent_begin_)
    send(sent_begin_, sent_end_,
         SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  sent_begin_ = std::exchange(sent_end_, position_);
}

Status AtomicFile::pad_to(uint64_t position) {
  constexpr std::array<std::byte, 64> kZeros{};
  while (position_ < position) {
    TSR_RETURN_IF_ERROR(
        append(std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), position - position_))));
  }
  return {};
}

Status AtomicFile::overwrite(uint64_t position, std::span<const std::byte> bytes) {
  TSR_CHECK(position + bytes.size() <= position_, "overwrite stays inside what was appended");
  return write_all(bytes, position);
}

Status AtomicFile::truncate_to(uint64_t position) {
  TSR_CHECK(position <= position_, "truncate_to goes back");
  while (::ftruncate(descriptor_, static_cast<off_t>(position)) != 0)
    if (errno != EINTR) return io_error(path_, "cannot truncate");
  position_ = position;
  sent_end_ = std::min(sent_end_, position);
  sent_begin_ = std::min(sent_begin_, position);
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) return io_error(path_, "cannot sync");
  struct stat old {};
  if (lstat(path_.c_str(), &old) == 0 && S_ISREG(old.st_mode))
    if (const auto permissions = FilePermissions::of(path_)) permissions->apply(descriptor_);
  // While locked: an unlocked file would count as a leftover.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return io_error(path_, "cannot rename onto it");
  ::close(std::exchange(descriptor_, -1));  // of synced data
  return sync_folder(parent_folder(path_));
}

}  // namespace tessera
