// Limits of a Graph that files share: a graph that can be built can be stored, and what is stored can be built.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

inline constexpr size_t kMaxTensorNameBytes = 1024;              // of a tensor or an output
inline constexpr int64_t kMaxTensorElements = int64_t{1} << 57;  // symbols at their capacity; bytes fit 63 bits

}  // namespace tessera
