// Byte sources outside the library: borrowed memory, or a callback.
#pragma once

#include <cstdint>
#include <memory>

#include "serialize/model.h"

namespace tessera {

// Calls release(context) when the last owner is destroyed; `release` may be null.
std::shared_ptr<const void> releasing(void (*release)(void* context), void* context);

struct ReadCallback {
  void* context = nullptr;
  int64_t size = 0;
  int32_t (*read_at)(void* context, int64_t offset, void* out, size_t bytes) = nullptr;
  std::shared_ptr<const void> owner;
};
std::shared_ptr<const ByteSource> callback_source(ReadCallback callback);

}  // namespace tessera
