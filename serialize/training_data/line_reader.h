// LineReader: rows of a file, a pipe or a text in memory, read in blocks:
// lines, elements of one array, or objects that span lines. One thread.
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
  static LineReader of_text(std::string_view text);  // copies the text
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  struct Line {
    int64_t number = 0;  // from 1; in arrays and for objects that span lines, the object's number
    std::string text;    // without its line end
  };
  // Reads further lines of about `bytes`, at least one; none at the end. Skips empty lines,
  // which are counted, and a UTF-8 byte-order mark. kCorrupt for a line longer than
  // kMostJsonBytes; kInvalidArgument for binary content and for a truncated or continued array.
  Result<std::vector<Line>> read(size_t bytes);
  std::string_view unit() const {
    return layout_ == RowLayout::kLines ? "line" : "row";
  }  // of numbers, once read

  int64_t size() const { return size_; }  // of the file or text; -1: unknown
  int64_t position() const { return position_; }

 private:
  LineReader(std::string name, int descriptor, bool is_owned, int64_t size)
      : name_(std::move(name)), descriptor_(descriptor), is_owned_(is_owned), size_(size) {}
  Result<bool> fill();  // false at the end
  Status look_at_head();
  Result<std::vector<Line>> read_lines(size_t bytes);
  Result<std::vector<Line>> read_values(size_t bytes);
  Result<char> next_character();  // after white space; '\0' at the end
  Status begin_value();           // after separators; sets is_done_
  Result<std::string> take_value();
  Status fail(std::string_view what) const;

  std::string name_;
  int descriptor_ = -1;
  bool is_owned_ = false;
  int64_t size_ = -1, position_ = 0, line_ = 0;
  std::string buffer_;
  size_t begin_ = 0;  // start of the unread part of the buffer
  RowLayout layout_ = RowLayout::kLines;
  bool has_looked_ = false, is_in_array_ = false, is_done_ = false;
};

}  // namespace tessera
