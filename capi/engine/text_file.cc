#include "capi/engine/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "graph/base/text.h"

namespace tessera {

Result<std::string> read_text_file(const std::string& path, std::string_view what, size_t most) {
  const auto failed = [&](int error, std::string_view verb) {
    if (error == EISDIR)
      return Status(StatusCode::kInvalidArgument, format("{} '{}' is a folder; give a file", what, path));
    return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                  format("{} '{}': cannot {}: {}", what, path, verb, std::strerror(error)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return failed(errno, "open");
  // A terminal's input ends; of /dev/zero and /dev/random there is always more.
  struct stat about {};
  if (fstat(fileno(file.get()), &about) == 0 && S_ISCHR(about.st_mode) && isatty(fileno(file.get())) == 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{} '{}' is a device; give a file or a pipe", what, path));
  std::string text;
  std::error_code unknown;
  if (const uintmax_t size = std::filesystem::file_size(path, unknown); !unknown && size <= most)
    text.reserve(size);
  std::array<char, size_t{1} << 16> part;
  while (const size_t got = std::fread(part.data(), 1, part.size(), file.get())) {
    if (got > most - text.size())
      return Status(StatusCode::kInvalidArgument,
                    format("{} '{}' is longer than {} bytes", what, path, most));
    text.append(part.data(), got);
  }
  if (std::ferror(file.get())) return failed(errno, "read");
  return text;
}

}  // namespace tessera
