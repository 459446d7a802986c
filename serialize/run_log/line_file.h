// LineFile: the JSON lines of a run, appended one by one. A killed process leaves whole lines and at most one that is
// cut off, which the next `open` removes. One thread.
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
  // Opens a file. Of an earlier run's lines the header and those of steps up to `step` are kept and go to `kept`; the
  // rest is removed. `is_new`: nothing was kept, and a header is needed. kExists for a file of anything
  // else, which stays as it is. Devices and pipes are written to.
  static Result<LineFile> open(const std::string& path, int64_t step,
                               const std::function<void(const Json&)>& kept);

  // A line that cannot be written is kept, and written before the next one.
  Status append(const Json& line) { return file_.append(dump(line) + '\n'); }
  bool is_new() const { return is_new_; }

 private:
  explicit LineFile(AppendFile file) : file_(std::move(file)) {}

  AppendFile file_;
  bool is_new_ = true;
};

// A text of a line; "" where the key is absent or no text.
std::string text_at(const Json& line, const char* key);
// A count of a line, from 0 to 2^48; 0 where the key is absent or no whole number.
int64_t count_at(const Json& line, const char* key);

// Value of "format" in the first line.
inline constexpr std::string_view kRunFormat = "tessera-run";

}  // namespace tessera
