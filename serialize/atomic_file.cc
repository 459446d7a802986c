#include "serialize/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

Status io_error(const std::string& path, std::string_view what) {
  const int error = errno;
  const StatusCode code = error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound : StatusCode::kIo;
  return Status(code, format("{}: {}: {}", path, what, std::strerror(error)));
}

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Status sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return io_error(folder, "cannot open the folder");
  // Some file systems do not sync folders (EINVAL): they have nothing to lose there.
  const bool failed = fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP;
  Status status = failed ? io_error(folder, "cannot sync the folder") : Status();
  close(descriptor);
  return status;
}

namespace {

// The file that `path` means, which may be new: a link is followed.
Result<std::string> target_of(const std::string& path) {
  const auto wrong = [&](std::string_view found) {
    return Status(StatusCode::kInvalidArgument,
                  format("{}: {}, wanted the name of a file to write", path, found));
  };
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the name of the file to write is empty");
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return path;  // new, or what creating it will tell
  if (S_ISDIR(info.st_mode)) return wrong("is a folder");
  if (!S_ISREG(info.st_mode)) return wrong("is a device, pipe or socket");
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return io_error(path, "cannot resolve");
  std::string target = resolved;
  std::free(resolved);
  return target;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path_as_given) {
  TSR_ASSIGN_OR_RETURN(const std::string path, target_of(path_as_given));
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string temporary = format("{}.tmp-{}-{}", path, static_cast<int64_t>(getpid()), attempt);
    const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return AtomicFile(path, temporary, descriptor);
    if (errno != EEXIST) return io_error(path, "cannot create a file beside it");
  }
  return Status(StatusCode::kIo, format("{}: too many temporary files '{}.tmp-*' lie beside it", path, path));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      position_(other.position_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

Status AtomicFile::write_all(std::span<const std::byte> bytes, uint64_t position) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t written = pwrite(descriptor_, bytes.data(), part, static_cast<off_t>(position));
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
  return {};
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

Status AtomicFile::commit() {
  if (fsync(descriptor_) != 0) return io_error(path_, "cannot sync");
  if (close(std::exchange(descriptor_, -1)) != 0) {
    Status status = io_error(path_, "cannot close");
    unlink(temporary_.c_str());
    return status;
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status status = io_error(path_, "cannot rename onto it");
    unlink(temporary_.c_str());
    return status;
  }
  return sync_folder(parent_folder(path_));
}

}  // namespace tessera
