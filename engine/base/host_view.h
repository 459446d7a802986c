// Views of host values as tensors, without a copy, and of tensors as values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/host_tensor.h"

namespace tessera {

// A view; the values must outlive it.
inline HostTensor view_of(std::span<const int32_t> values, Shape shape) {
  return HostTensor{{DType::kI32, shape}, std::as_bytes(values), nullptr};
}

inline HostTensor view_of(std::span<const float> values, Shape shape) {
  return HostTensor{{DType::kF32, shape}, std::as_bytes(values), nullptr};
}

// Converts f32 or f64 values.
inline std::vector<double> doubles_of(const HostTensor& tensor) {
  const auto copy_of = [](const auto& values) { return std::vector<double>(values.begin(), values.end()); };
  return tensor.type.dtype == DType::kF64 ? copy_of(tensor.as<double>()) : copy_of(tensor.as<float>());
}

}  // namespace tessera
