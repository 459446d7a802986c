// A sequence's file: its tokens, and the keys and values of its first positions, by position and in the layout of the whole
// model, so that they fit any pages and devices. Little-endian: a header, the states, tokens i32, rows, and an xxh3 of all
// that. The format is described in COMPATIBILITY.md. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/page_state.h"
#include "serialize/atomic_file.h"
#include "serialize/byte_cursor.h"
#include "serialize/hash_stream.h"

namespace tessera {

struct SequenceHeader {
  uint64_t model = 0;  // fingerprint of what computed the rows
  uint64_t root = 0;   // as the server's sequences have it
  std::vector<PageState> states;
  std::vector<int32_t> tokens;
  int64_t cached = 0;  // positions that have rows: the first ones
  // First position with rows of all states; earlier ones have rows only of states that are not is_window.
  int64_t window_from = 0;

  int64_t row_bytes(
      int64_t position) const;    // bytes of the position's rows, one of each state that has it
  int64_t all_row_bytes() const;  // bytes of all cached positions
};

class SequenceFileWriter {
 public:
  // The path keeps what it holds until `commit`.
  static Result<SequenceFileWriter> create(const std::string& path, const SequenceHeader& header);
  Status append(std::span<const std::byte> rows);  // of the next positions; all are wanted
  Status commit();

 private:
  SequenceFileWriter(AtomicFile file, int64_t row_bytes_left)
      : file_(std::move(file)), row_bytes_left_(row_bytes_left) {}
  Status put(std::span<const std::byte> bytes);

  AtomicFile file_;
  HashStream hash_;
  int64_t row_bytes_left_;
};

class SequenceFileReader {
 public:
  // Of an untrusted file: all numbers are checked against its size before anything is allocated. Tokens are not negative;
  // whether they, and the states, are the model's is for the caller to check.
  static Result<SequenceFileReader> open(const std::string& path);
  static Result<SequenceFileReader> open(std::shared_ptr<const ByteSource> source);
  const SequenceHeader& header() const { return header_; }
  Status read_rows(std::span<std::byte> rows);  // of the next positions
  // Once all rows are read: whether the file has the checksum that it ends with. What was read before is untrusted.
  Status check();

 private:
  explicit SequenceFileReader(std::shared_ptr<const ByteSource> source)
      : source_(std::move(source)), cursor_(std::make_unique<ByteCursor>(*source_)) {}
  Status read_header();
  template <class T>
  Result<T> number(std::string_view what);
  Result<PageState> state(bool has_window);

  std::shared_ptr<const ByteSource> source_;
  std::unique_ptr<ByteCursor> cursor_;
  HashStream hash_;
  SequenceHeader header_;
};

}  // namespace tessera
