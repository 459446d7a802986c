// ResultFile: lines finished in any order, in a file in the order of their numbers. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/inference/request_file.h"

namespace tessera {

// OrderedLines: writes lines in the order of their numbers, which begin at 1 and have no gaps.
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

// Lines go to PATH.part as they are finished, at once, so that a killed process loses none; `finish` turns it into PATH.
// Standard output ("" or "-"), pipes, devices and links receive them in order. Only lines that are finished early are in memory.
class ResultFile {
 public:
  // Fails if nothing can be written, or PATH.part exists.
  static Result<std::unique_ptr<ResultFile>> create(const std::string& path);
  ~ResultFile();  // an empty PATH.part is removed
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  // `line` begins with {"line":number.
  Status put(int64_t number, const std::string& line);
  Status finish();
  // The file with the finished lines; "" if they went to the reader already.
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
