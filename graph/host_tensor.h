// HostTensor: a whole (global) tensor in host memory, row-major and contiguous; owned or borrowed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/base/shape.h"

namespace tessera {

struct HostTensor {
  TensorType type;
  std::span<const std::byte> data;            // bytes(type) of them
  std::shared_ptr<const void> keep_alive;     // owner of `data` when borrowed (a mapped file); shared by design

  // A zero-filled tensor that owns its bytes, and a writable view of them.
  static HostTensor zeros(TensorType type, std::span<std::byte>* writable);
  template <class T>
  static HostTensor copy_of(TensorType type, std::span<const T> values) {
    auto owner = std::make_shared<std::vector<T>>(values.begin(), values.end());
    return HostTensor{type, std::as_bytes(std::span<const T>(*owner)), owner};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
};

inline HostTensor HostTensor::zeros(TensorType type, std::span<std::byte>* writable) {
  auto owner = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes(type)));
  if (writable != nullptr) *writable = *owner;
  return HostTensor{type, *owner, owner};
}

}  // namespace tessera
