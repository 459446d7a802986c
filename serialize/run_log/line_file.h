// LineFile: the JSON lines of a run, appended one by one. A process that is killed leaves whole lines and at most one
// that is cut off, which the next one that opens the file removes. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/json.h"

namespace tessera {

// Writes all bytes, in one call of the system where it takes them; kIo names `path`.
Status write_whole(int descriptor, std::string_view bytes, const std::string& path);

class LineFile {
 public:
  // Of a file of an earlier run: keeps its header and what it has of steps up to `step`, hands each kept line to `kept`,
  // and removes the rest; a header is needed where nothing is kept (`is_new`). kFailedPrecondition for a file of
  // anything else, which stays as it is. Devices and pipes are written to.
  static Result<LineFile> open(const std::string& path, int64_t step,
                               const std::function<void(const Json&)>& kept);
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile();

  Status append(const Json& line);
  bool is_new() const { return is_new_; }
  const std::string& path() const { return path_; }

 private:
  LineFile(std::string path, int descriptor, bool is_new)
      : path_(std::move(path)), descriptor_(descriptor), is_new_(is_new) {}

  std::string path_;
  int descriptor_ = -1;
  bool is_new_ = true;
};

// The first line's "format".
inline constexpr std::string_view kRunFormat = "tessera-run";

}  // namespace tessera
