#include "runtime/file_arena.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "graph/base/text.h"

namespace tessera {

namespace {

Status io_error(std::string_view what, int error) {
  return Status(error == ENOMEM ? StatusCode::kOutOfMemory : StatusCode::kIo,
                format("{}: {}", what, std::strerror(error)));
}

// Opens a file without a directory entry, so that it disappears even if the process
// is killed. On file systems without O_TMPFILE, a file is unlinked at once.
int open_nameless(const std::string& folder) {
#ifdef O_TMPFILE
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
#endif
  std::string name = folder + "/tessera.XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) (void)::unlink(name.c_str());
  return named;
}

std::string default_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != 0 ? folder : "/tmp";
}

}  // namespace

Result<std::unique_ptr<FileArena>> FileArena::create(const std::string& folder, int64_t bytes) {
  const std::string where = folder.empty() ? default_folder() : folder;
  const int descriptor = open_nameless(where);
  if (descriptor < 0) return io_error(format("no file can be made in folder '{}'", where), errno);
  std::unique_ptr<FileArena> arena(new FileArena(descriptor));
  if (bytes > 0)
    if (const int error = posix_fallocate(descriptor, 0, bytes); error != 0)
      return io_error(
          format("folder '{}' has no room for {} of offloaded tensors ({} bytes); free some, or choose "
                 "another folder",
                 where, bytes_text(bytes), bytes),
          error);
  return arena;
}

FileArena::~FileArena() { ::close(descriptor_); }

Status FileArena::read(int64_t offset, void* out, int64_t bytes) const {
  auto* at = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_, at, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return io_error(format("reading {} bytes of the file tier at {}", bytes, offset), errno);
    if (done == 0)
      return Status(StatusCode::kIo, format("the file tier ends at {}, {} more bytes wanted", offset, bytes));
    at += done, offset += done, bytes -= done;
  }
  return {};
}

Status FileArena::write(int64_t offset, const void* in, int64_t bytes) {
  static constexpr std::array<std::byte, 1 << 16> kZeros{};
  const auto* at = static_cast<const std::byte*>(in);
  while (bytes > 0) {
    const int64_t count = at != nullptr ? bytes : std::min<int64_t>(bytes, kZeros.size());
    const ssize_t done =
        ::pwrite(descriptor_, at != nullptr ? at : kZeros.data(), static_cast<size_t>(count), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return io_error(format("writing {} bytes of the file tier at {}", bytes, offset), errno);
    if (at != nullptr) at += done;
    offset += done, bytes -= done;
  }
  int64_t highest = highest_.load(std::memory_order_relaxed);
  while (highest < offset && !highest_.compare_exchange_weak(highest, offset, std::memory_order_relaxed)) {
  }
  return {};
}

}  // namespace tessera
