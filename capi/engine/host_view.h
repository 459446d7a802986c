// view_of: host values as a tensor, without a copy.
#pragma once

#include <cstdint>
#include <span>

#include "graph/host_tensor.h"

namespace tessera {

// The values must outlive what is made of the view.
inline HostTensor view_of(std::span<const int32_t> values, Shape shape) {
  return HostTensor{{DType::kI32, shape}, std::as_bytes(values), nullptr};
}

}  // namespace tessera
