// SourceStream: the contents of a TensorSource in pieces of any size, one after another. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "serialize/tensor_source.h"

namespace tessera {

class SourceStream {
 public:
  explicit SourceStream(TensorSource source) : source_(std::move(source)), reader_(source_, false) {}
  SourceStream(const SourceStream&) = delete;
  SourceStream& operator=(const SourceStream&) = delete;

  // The next out.size() bytes; no more than are left. kCorrupt with the last ones where the hash is another.
  Status read(std::span<std::byte> out);

 private:
  const TensorSource source_;
  TensorReader reader_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> rest_;  // of the slice read last
};

}  // namespace tessera
