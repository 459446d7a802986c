// SourceStream: reads a TensorSource sequentially, in pieces of any size. One thread.
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

  // Reads the next out.size() bytes, at most the rest. kCorrupt at the end if the hash differs.
  Status read(std::span<std::byte> out);

 private:
  const TensorSource source_;
  TensorReader reader_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> rest_;  // unread part of the last slice
};

}  // namespace tessera
