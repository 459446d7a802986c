// LineFile: the JSON lines of a run. A killed process leaves whole lines
// and at most one truncated, which the next `open` removes. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/run_log/append_file.h"
#include "text/json.h"

namespace tessera {

class LineFile {
 public:
  // Opens a file. Keeps an earlier run's header and its lines up to `step`, passed to
  // `kept`, and removes the rest. `is_new`: nothing was kept, so a header is needed.
  // kExists for other contents, which stay. Devices and pipes are written to.
  static Result<LineFile> open(const std::string& path, int64_t step,
                               const std::function<void(const Json&)>& kept);

  // A failed write is retried before the next line.
  Status append(const Json& line) { return file_.append(dump(line) + '\n'); }
  bool is_new() const { return is_new_; }

 private:
  explicit LineFile(AppendFile file) : file_(std::move(file)) {}

  AppendFile file_;
  bool is_new_ = true;
};

// A text of the line; "" if absent or of another type.
std::string text_at(const Json& line, const char* key);
// A count of the line, 0 to 2^48; 0 if absent or not an integer.
int64_t count_at(const Json& line, const char* key);

// Value of "format" in the first line.
inline constexpr std::string_view kRunFormat = "tessera-run";

}  // namespace tessera
