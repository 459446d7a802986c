// A sequence's file: its tokens, the keys and values of its first positions, and the state of recurrent layers after them, in the
// whole model's layout, independent of pages and devices. Little-endian: a header, the states, tokens i32, rows, and an xxh3 of
// all. The format is described in COMPATIBILITY.md. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/page_state.h"
#include "graph/row_state.h"
#include "serialize/atomic_file.h"
#include "serialize/byte_cursor.h"
#include "serialize/hash_stream.h"

namespace tessera {

struct SequenceHeader {
  uint64_t model = 0;  // fingerprint of the model that computed the rows
  uint64_t root = 0;   // root of the server's sequences
  std::vector<PageState> states;
  std::vector<RowState> rows = {};  // after the cached positions; none: the file has keys and values alone
  std::vector<int32_t> tokens;
  int64_t cached = 0;  // number of first positions with rows
  // First position with rows of all states; earlier ones lack those of is_window states.
  int64_t window_from = 0;

  int64_t row_bytes(
      int64_t position) const;    // bytes of the position's rows, one per state that has it
  int64_t all_row_bytes() const;  // bytes of all cached positions
  int64_t state_bytes() const;    // bytes of `rows`
};

class SequenceFileWriter {
 public:
  // The path is unchanged until `commit`.
  static Result<SequenceFileWriter> create(const std::string& path, const SequenceHeader& header);
  Status append(std::span<const std::byte> rows);  // the next positions, then the states; all must be written
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
  // Opens an untrusted file: checks all numbers against its size before allocating.
  // Tokens are not negative; the caller checks that tokens and states match the model.
  static Result<SequenceFileReader> open(const std::string& path);
  static Result<SequenceFileReader> open(std::shared_ptr<const ByteSource> source);
  const SequenceHeader& header() const { return header_; }
  Status read_rows(std::span<std::byte> rows);  // reads the next positions, then the states
  // Verifies the checksum, after all rows; earlier results are untrusted until then.
  Status check();

 private:
  explicit SequenceFileReader(std::shared_ptr<const ByteSource> source)
      : source_(std::move(source)), cursor_(std::make_unique<ByteCursor>(*source_)) {}
  Status read_header();
  template <class T>
  Result<T> number(std::string_view what);
  Result<PageState> state(bool has_window);
  Result<RowState> row_state();
  Status check_sizes(uint64_t tokens, uint64_t cached) const;

  std::shared_ptr<const ByteSource> source_;
  std::unique_ptr<ByteCursor> cursor_;
  HashStream hash_;
  SequenceHeader header_;
};

}  // namespace tessera
