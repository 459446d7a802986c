#include "graph/host_tensor.h"

namespace tessera {

HostTensor HostTensor::zeros(TensorType type, std::span<std::byte>* writable) {
  auto owner = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes(type)));
  if (writable != nullptr) *writable = *owner;
  return HostTensor{type, *owner, owner};
}

}  // namespace tessera
