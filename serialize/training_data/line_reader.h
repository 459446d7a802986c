// LineReader: the rows of a file or a pipe, read in blocks, or of a text in memory: lines, or where the content is one array
// or objects that span lines, each of these. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/training_data/data_content.h"

namespace tessera {

class LineReader {
 public:
  // "-": standard input. kNotFound, kIo; kInvalidArgument for a folder.
  static Result<LineReader> open(const std::string& path);
  static LineReader of_text(std::string_view text);  // which is copied
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  struct Line {
    int64_t number = 0;  // from 1 on; of an array and of objects that span lines that of the object
    std::string text;    // without its end
  };
  // Up to about `bytes` of further lines, at least one; none at the end. Empty lines are counted and left out, and so is a
  // byte-order mark of UTF-8. kCorrupt for a line longer than kMostJsonBytes; kInvalidArgument for binary content and for an
  // array that is cut off or goes on behind its end.
  Result<std::vector<Line>> read(size_t bytes);
  std::string_view unit() const {
    return layout_ == RowLayout::kLines ? "line" : "row";
  }  // of numbers, once read

  int64_t size() const { return size_; }  // of a file or text; -1: unknown
  int64_t position() const { return position_; }

 private:
  LineReader(std::string name, int descriptor, bool is_owned, int64_t size)
      : name_(std::move(name)), descriptor_(descriptor), is_owned_(is_owned), size_(size) {}
  Result<bool> fill();  // false at the end
  Status look_at_head();
  Result<std::vector<Line>> read_lines(size_t bytes);
  Result<std::vector<Line>> read_values(size_t bytes);
  Result<char> next_character();  // behind white space; '\0' at the end
  Status begin_value();           // past what separates values; sets is_done_
  Result<std::string> take_value();
  Status fail(std::string_view what) const;

  std::string name_;
  int descriptor_ = -1;
  bool is_owned_ = false;
  int64_t size_ = -1, position_ = 0, line_ = 0;
  std::string buffer_;
  size_t begin_ = 0;  // of what is left in the buffer
  RowLayout layout_ = RowLayout::kLines;
  bool has_looked_ = false, is_in_array_ = false, is_done_ = false;
};

}  // namespace tessera
