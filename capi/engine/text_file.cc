#include "capi/engine/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "graph/base/cancellation.h"
#include "graph/base/memory_limit.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

// Half of the memory that this process may have: a text and its tokens want more than the other half.
size_t half_of_memory() { return static_cast<size_t>(process_memory_limit()) / 2; }

Status read_failure(int error, std::string_view verb, std::string_view name) {
  if (error == EISDIR)
    return Status(StatusCode::kInvalidArgument, format("{} is a folder; give a file", name));
  return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                format("{}: cannot {}: {}", name, verb, std::strerror(error)));
}

// Reads the rest of `file`; `name` begins messages.
Result<std::string> read_to_end(std::FILE* file, std::string_view name, size_t most) {
  struct stat about {};
  const bool known = fstat(fileno(file), &about) == 0;
  // A terminal's input ends; /dev/zero and /dev/random never do.
  if (known && S_ISCHR(about.st_mode) && isatty(fileno(file)) == 0)
    return Status(StatusCode::kInvalidArgument, format("{} is a device; give a file or a pipe", name));
  const size_t half = half_of_memory(), bound = std::min(most, half);
  const std::string_view why = half < most ? ", half of the memory that is here" : "";
  const bool sized = known && S_ISREG(about.st_mode);
  const auto size = static_cast<size_t>(about.st_size);
  if (sized && size > bound)
    return Status(StatusCode::kInvalidArgument,
                  format("{} has {}, wanted at most {}{}", name, bytes_text(about.st_size),
                         bytes_text(static_cast<int64_t>(bound)), why));
  std::string text;
  if (sized) text.reserve(size);
  std::array<char, size_t{1} << 14> part;
  while (const size_t got = std::fread(part.data(), 1, part.size(), file)) {
    cancellation_point();
    if (got > bound - text.size())
      return Status(StatusCode::kInvalidArgument,
                    format("{} has not ended after {}{}; give less of it (head -c), or another file", name,
                           bytes_text(static_cast<int64_t>(bound)), why));
    text.append(part.data(), got);
  }
  if (std::ferror(file)) return read_failure(errno, "read", name);
  return text;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::string_view what, size_t most) {
  const std::string name = format("{} '{}'", what, path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return read_failure(errno, "open", name);
  return read_to_end(file.get(), name, most);
}

Result<std::string> read_standard_input(std::string_view what) {
  return read_to_end(stdin, format("{} from standard input", what), SIZE_MAX);
}

}  // namespace tessera
