#include "engine/base/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include "graph/base/cancellation.h"
#include "graph/base/memory_limit.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

namespace {

// Half of the process' memory; a text's tokens need more than the other half.
size_t half_of_memory() { return static_cast<size_t>(process_memory_limit()) / 2; }

Status read_failure(int error, std::string_view verb, std::string_view name) {
  if (error == EISDIR)
    return Status(StatusCode::kInvalidArgument, format("{} is a folder; give a file", name));
  return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                format("{}: cannot {}: {}", name, verb, std::strerror(error)));
}

// Waits for input or its end, with cancellation points.
void wait_for_text(int file) {
  constexpr int kLookMs = 20;
  pollfd waiting{file, POLLIN, 0};
  for (;;) {
    const int ready = poll(&waiting, 1, kLookMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
    cancellation_point();
  }
}

// Reads the rest of `file` after `text`, which was read already; `name` begins messages.
Result<std::string> read_to_end(int file, std::string text, std::string_view name, size_t most) {
  struct stat about {};
  const bool known = fstat(file, &about) == 0;
  // A terminal's input ends; that of /dev/zero and /dev/random does not.
  if (known && S_ISCHR(about.st_mode) && isatty(file) == 0)
    return Status(StatusCode::kInvalidArgument, format("{} is a device; give a file or a pipe", name));
  const size_t half = half_of_memory(), bound = std::min(most, half);
  const std::string_view why = half < most ? ", half of the memory that is here" : "";
  const bool sized = known && S_ISREG(about.st_mode);
  const auto size = static_cast<size_t>(about.st_size);
  if (sized && size > bound)
    return Status(StatusCode::kInvalidArgument,
                  format("{} has {}, wanted at most {}{}", name, bytes_text(about.st_size),
                         bytes_text(static_cast<int64_t>(bound)), why));
  if (sized) text.reserve(text.size() + size);
  std::array<char, size_t{1} << 14> part;
  for (;;) {
    cancellation_point();
    if (!sized) wait_for_text(file);
    const ssize_t got = ::read(file, part.data(), part.size());
    if (got == 0) return text;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return read_failure(errno, "read", name);
    if (static_cast<size_t>(got) > bound - text.size())
      return Status(StatusCode::kInvalidArgument,
                    format("{} has not ended after {}{}; give less of it (head -c), or another file", name,
                           bytes_text(static_cast<int64_t>(bound)), why));
    text.append(part.data(), static_cast<size_t>(got));
  }
}

// Bytes of standard input buffered by the host program but not consumed.
std::string taken_input() {
  std::string text;
#ifdef __GLIBC__
  text.resize(static_cast<size_t>(stdin->_IO_read_end - stdin->_IO_read_ptr));
  text.resize(std::fread(text.data(), 1, text.size(), stdin));
#endif
  return text;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::string_view what, size_t most) {
  const std::string name = format("{} '{}'", what, path);
  // Non-blocking: a pipe may have no writer yet, which is awaited below.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return read_failure(errno, "open", name);
  const std::shared_ptr<void> closed(nullptr, [file](void*) { close(file); });
  return read_to_end(file, {}, name, most);
}

Result<std::string> read_standard_input(std::string_view what, size_t most) {
  return read_to_end(STDIN_FILENO, taken_input(), format("{} from standard input", what), most);
}

bool is_own_file(const std::string& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode);
}

Result<int> open_in_place(const std::string& path) {
  // Without waiting for the reader of a pipe.
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file < 0 && errno == ENXIO)
    return Status(
        StatusCode::kIo,
        format("{}: is a pipe or socket that nobody reads; start its reader first, or name a file", path));
  if (file < 0) return io_error(path, "cannot write");
  (void)fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

Status check_text_path(const std::string& path, bool takes_devices) {
  struct stat found {};
  const bool is_device =
      ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
  return is_device && takes_devices ? Status() : AtomicFile::check(path);
}

Status write_text_file(const std::string& path, std::string_view content) {
  if (is_own_file(path)) {
    TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
    TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(content))));
    return file.commit();
  }
  TSR_ASSIGN_OR_RETURN(const int descriptor, open_in_place(path));
  std::FILE* const file = fdopen(descriptor, "wb");
  const bool is_written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return (std::fclose(file) == 0) && is_written ? Status() : io_error(path, "cannot write");
}

}  // namespace tessera
