// TensorSource: the contents of one tensor, read slice by slice, as
// stored or decoded on reading. Readers need memory for one slice.
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
  // Reads buffer.size() bytes from `offset`, into the buffer or in place. A slice begins
  // at a multiple of unit_bytes, and ends at one or at the tensor's end. Any thread.
  std::function<Result<std::span<const std::byte>>(int64_t offset, std::span<std::byte> buffer)> read;
  int64_t unit_bytes = 1;
  std::optional<uint64_t> xxh3;  // of the contents, if stored
  HostTensor in_place;  // the whole contents if in memory or mapped; else without data
  int64_t slice_bytes = int64_t{1} << 20;  // largest slice, unless the unit is larger
};

TensorSource source_in_memory(std::string name, HostTensor contents);

// TensorReader: reads a source from begin to end and checks its hash at the end.
class TensorReader {
 public:
  // `source` must outlive it. `wants_hash`: computes a hash even if the source has none.
  TensorReader(const TensorSource& source, bool wants_hash);

  // Bytes of a full slice: the source's, rounded to units.
  int64_t slice_bytes() const { return slice_bytes_; }
  size_t next_bytes() const;  // of the next slice; 0 for an empty tensor
  // Reads the next slice; `buffer` has next_bytes(). kCorrupt at
  // the end if the hash differs. May be retried after a failure.
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

// The whole contents: in place, or a copy with verified hash.
Result<HostTensor> read_whole(const TensorSource& source);

}  // namespace tessera
