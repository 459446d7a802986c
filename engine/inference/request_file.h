// RequestFile: texts to generate, a row of JSON a line. It is read twice, so that a wrong
// line is reported before any computation; one line at a time is in memory. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/inference/request_row.h"

namespace tessera {

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin && file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

class RequestFile {
 public:
  // Checks that each line is a request, and the types of its options. Input that cannot be
  // read twice ("-" for standard input, pipes) is copied to a file without a name in `folder`.
  static Result<std::unique_ptr<RequestFile>> open(const std::string& path, const std::string& folder);

  int64_t count() const { return count_; }
  // The file's; "." of standard input.
  std::string folder() const;
  // The values of "adapter" in all lines, each once with its first line, in the order of these.
  const std::vector<std::pair<std::string, int64_t>>& adapters() const { return adapters_; }
  // nullopt after the last.
  Result<std::optional<RequestRow>> next();
  int64_t line() const { return line_; }  // of the row that `next` gave, from 1
  // "requests.jsonl: line 7": the place in messages.
  std::string place(int64_t line) const;

 private:
  explicit RequestFile(std::string name) : name_(std::move(name)) {}
  Result<bool> read_line(std::FILE* file, std::string& line);
  Status check_lines(std::FILE* input, std::FILE* copy);
  Status copy_line(const std::string& line, std::FILE* copy) const;
  Result<RequestRow> parse(const std::string& line) const;

  const std::string name_;
  File file_;
  std::vector<std::pair<std::string, int64_t>> adapters_;
  int64_t count_ = 0, line_ = 0;
};

}  // namespace tessera
