#include "serialize/run_log/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/plain_file.h"

namespace tessera {

namespace {

// Longest line; samples are shortened to fit.
constexpr size_t kMostLineBytes = size_t{4} << 20;
constexpr size_t kReadBytes = size_t{64} << 10;

bool is_header(const Json& line) {
  const auto found = line.find("format");
  return found != line.end() && *found == kRunFormat;
}

// Size of the lines to keep, from the start; each line goes to `kept`.
Result<int64_t> kept_bytes(int descriptor, const std::string& path, int64_t step,
                           const std::function<void(const Json&)>& kept) {
  std::string buffer;
  int64_t done = 0, number = 0;
  const auto foreign = [&] {
    return Status(
        kExists,
        format("{} is there and is no file of metrics: its first line has no \"format\":\"{}\"; name "
               "another file, or move this one away",
               path, kRunFormat));
  };
  for (;;) {
    const size_t end = buffer.find('\n');
    if (end == std::string::npos) {
      if (buffer.size() > kMostLineBytes) return number == 0 ? Result<int64_t>(foreign()) : done;
      const size_t had = buffer.size();
      buffer.resize(had + kReadBytes);
      const ssize_t got = ::read(descriptor, buffer.data() + had, kReadBytes);
      if (got < 0 && errno == EINTR) {
        buffer.resize(had);
        continue;
      }
      if (got < 0) return io_error(path, "cannot read");
      buffer.resize(had + static_cast<size_t>(got));
      if (got > 0) continue;
      // A truncated header still begins like one.
      const bool is_cut_header = number == 0 && !buffer.empty() && buffer.starts_with("{\"kind\":\"header\"");
      return number == 0 && !buffer.empty() && !is_cut_header ? Result<int64_t>(foreign()) : done;
    }
    const Result<Json> line = parse_json(std::string_view(buffer).substr(0, end), path, kMostLineBytes);
    if (number == 0 && (!line.ok() || !line->is_object() || !is_header(*line))) return foreign();
    if (!line.ok() || !line->is_object()) return done;
    if (number > 0 && (count_at(*line, "step") > step || text_at(*line, "kind") == "end")) return done;
    // A run from step 0 writes its own header.
    if (number == 0 && step == 0) return 0;
    kept(*line);
    ++number;
    done += static_cast<int64_t>(end) + 1;
    buffer.erase(0, end + 1);
  }
}

}  // namespace

std::string text_at(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t count_at(const Json& line, const char* key) {
  constexpr int64_t kMost = int64_t{1} << 48;
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number_integer()) return 0;
  if (found->is_number_unsigned())
    return static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), kMost));
  return std::clamp<int64_t>(found->get<int64_t>(), 0, kMost);
}

Result<LineFile> LineFile::open(const std::string& path, int64_t step,
                                const std::function<void(const Json&)>& kept) {
  struct stat info {};
  const bool is_there = stat(path.c_str(), &info) == 0;
  const bool is_regular = !is_there || S_ISREG(info.st_mode);
  const int flags = is_regular ? O_RDWR | O_CREAT | O_APPEND : O_WRONLY;
  // Non-blocking: a pipe must not delay the run, neither before it is read nor when it is full.
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0 && errno == ENXIO)
    return Status(StatusCode::kIo, format("{}: is {} that nobody reads; start its reader first, or name a "
                                          "file",
                                          path, kind_of_file(info.st_mode)));
  if (descriptor < 0) return io_error(path, "cannot open for writing");
  LineFile file(AppendFile(path, descriptor));
  if (::fstat(descriptor, &info) != 0) return io_error(path, "cannot look at");
  if (!S_ISREG(info.st_mode)) return file;
  TSR_ASSIGN_OR_RETURN(const int64_t bytes, kept_bytes(descriptor, path, step, kept));
  if (::ftruncate(descriptor, bytes) != 0) return io_error(path, "cannot shorten");
  file.is_new_ = bytes == 0;
  return file;
}

}  // namespace tessera
