// TensorSource: the contents of one tensor, read slice by slice: from a file as they are stored, or made from
// what is stored (decoded, unpacked). Whoever reads them needs memory for a slice only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "serialize/hash_stream.h"

namespace tessera {

struct TensorSource {
  std::string name;
  TensorType type;
  // The contents from byte `offset` on, buffer.size() of them: in the buffer, or where they are in memory. A
  // slice begins at a multiple of unit_bytes, and ends at one or with the tensor. Any thread.
  std::function<Result<std::span<const std::byte>>(int64_t offset, std::span<std::byte> buffer)> read;
  int64_t unit_bytes = 1;
  std::optional<uint64_t> xxh3;  // of the contents, where the file has it
  HostTensor in_place;  // the whole contents, in a mapping or in memory; without data where they are not
  int64_t slice_bytes = int64_t{1} << 20;  // of a slice at most, where the unit is not more
};

TensorSource source_in_memory(std::string name, HostTensor contents);

// Reads a source from its beginning to its end and checks its hash there.
class TensorReader {
 public:
  // `source` outlives it. `wants_hash`: also for a source without one to check.
  TensorReader(const TensorSource& source, bool wants_hash);

  // Bytes of a full slice: the source's, where the unit divides it.
  int64_t slice_bytes() const { return slice_bytes_; }
  size_t next_bytes() const;  // of the next slice; 0 for the only one of an empty tensor
  // The next slice; `buffer` has next_bytes(). kCorrupt with the last one where the hash is another. After a
  // failure it can be called again.
  Result<std::span<const std::byte>> next(std::span<std::byte> buffer);
  bool is_done() const { return done_; }
  int64_t position() const { return position_; }
  uint64_t xxh3() const { return hash_->digest(); }  // of the bytes read

 private:
  const TensorSource& source_;
  const int64_t bytes_, slice_bytes_;
  int64_t position_ = 0;
  bool done_ = false;
  std::optional<HashStream> hash_;
};

// The whole contents: in place, or a copy, whose hash is checked.
Result<HostTensor> read_whole(const TensorSource& source);

}  // namespace tessera
