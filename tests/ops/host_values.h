// Short ways to make host tensors for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/host_tensor.h"

namespace tessera::test {

inline HostTensor f64(Shape shape, const std::vector<double>& values) {
  return HostTensor::copy_of<double>({DType::kF64, shape}, values);
}
inline HostTensor f32(Shape shape, const std::vector<float>& values) {
  return HostTensor::copy_of<float>({DType::kF32, shape}, values);
}
inline HostTensor i32(Shape shape, const std::vector<int32_t>& values) {
  return HostTensor::copy_of<int32_t>({DType::kI32, shape}, values);
}
inline HostTensor i64(Shape shape, const std::vector<int64_t>& values) {
  return HostTensor::copy_of<int64_t>({DType::kI64, shape}, values);
}

// Values in [-1, 1) that differ from index to index and from `salt` to `salt`; no generator state.
inline std::vector<double> scattered(int64_t count, uint64_t salt) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t x = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u ^ (salt + 1) * 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    values.push_back(static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1);
  }
  return values;
}
inline HostTensor scattered_f64(Shape shape, uint64_t salt) {
  return f64(shape, scattered(shape.elements(), salt));
}

}  // namespace tessera::test
