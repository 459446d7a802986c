#include "parallel/pricing/reserved_memory.h"

#include <algorithm>

namespace tessera {

int64_t reserved_bytes(const DeviceKind& kind) {
  constexpr int64_t kMost = int64_t{3} << 30;
  if (kind.reserved_bytes >= 0) return kind.reserved_bytes;
  return std::min(kMost, kind.memory_bytes / 16 * 3);
}

}  // namespace tessera
