// Copies between a global row-major tensor in host memory and a contiguous local box of it in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "graph/base/shape.h"
#include "graph/sharding_spec.h"
#include "runtime/backend_abi.h"

namespace tessera {

int64_t box_elements(const Box& box);

// The box must be inside the global shape. Issued on `stream`; does not wait.
Status copy_into_slot(const tsr_backend_api& api, tsr_abi_stream* stream, const std::byte* global,
                      const TensorType& type, const Box& box, void* local);
Status copy_out_of_slot(const tsr_backend_api& api, tsr_abi_stream* stream, const void* local,
                        const TensorType& type, const Box& box, std::byte* global);

// Byte offset of the box in the global tensor if it is contiguous there, so that it can be used in place.
std::optional<int64_t> find_in_place(const TensorType& type, const Box& box);
// Copy the box within host memory, out of the global tensor and into it.
void copy_box(const std::byte* global, const TensorType& type, const Box& box, std::byte* local);
void put_box(const std::byte* local, const TensorType& type, const Box& box, std::byte* global);
bool equals_box(const std::byte* global, const TensorType& type, const Box& box, const std::byte* local);

}  // namespace tessera
