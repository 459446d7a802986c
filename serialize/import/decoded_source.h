// A ByteSource of tensors whose bytes are computed from others' when they are read.
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
  int64_t chunk_bytes = 0;  // what is computed at once; the last chunk may have fewer
  std::function<Status(int64_t chunk, std::span<std::byte> out)> decode;  // any thread
};

// The tensors one after another. The chunk that was read last is kept, so that slices of it cost nothing: memory of one
// chunk. Any thread.
std::shared_ptr<const ByteSource> decoded_source(std::vector<DecodedTensor> tensors);

}  // namespace tessera
