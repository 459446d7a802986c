// ResultFile: lines that are done in any order, in a file that has them in the order of their numbers. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/inference/request_file.h"

namespace tessera {

// OrderedLines: hands lines on in the order of their numbers, which begin at 1 and have no gaps.
class OrderedLines {
 public:
  // `name` of the file begins messages.
  OrderedLines(std::FILE* out, std::string name) : out_(out), name_(std::move(name)) {}
  Status put(int64_t number, const std::string& line);

 private:
  std::FILE* const out_;
  const std::string name_;
  int64_t next_ = 1;
  std::map<int64_t, std::string> early_;
};

// Lines go to PATH.part as they are done, at once, so that a process that is killed loses none; `finish` makes PATH of it.
// Standard output ("" or "-"), pipes, devices and links get them in order. Not more lines are in memory than are done early.
class ResultFile {
 public:
  // Fails where nothing can be written, or PATH.part is there already.
  static Result<std::unique_ptr<ResultFile>> create(const std::string& path);
  ~ResultFile();  // an empty PATH.part is removed
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  // `line` begins with {"line":number.
  Status put(int64_t number, const std::string& line);
  Status finish();
  // The file that has what is done, "" where it has gone to the reader already.
  const std::string& part() const { return part_; }

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}
  Status open_part();
  Status sort_part();  // into the file itself

  const std::string path_;
  std::string part_;
  File file_;
  std::unique_ptr<OrderedLines> ordered_;  // without a part
  int64_t last_ = 0;
  bool is_sorted_ = true;
};

}  // namespace tessera
