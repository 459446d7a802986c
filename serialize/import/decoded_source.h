// A ByteSource of tensors that are decoded from others on reading.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

struct DecodedTensor {
  int64_t bytes = 0;
  int64_t chunk_bytes = 0;  // unit of decoding; the last chunk may be shorter
  std::function<Status(int64_t chunk, std::span<std::byte> out)> decode;  // any thread
};

// The concatenated tensors. The last chunk read is cached, so
// that its slices are free: memory of one chunk. Any thread.
std::shared_ptr<const ByteSource> decoded_source(std::vector<DecodedTensor> tensors);

}  // namespace tessera
