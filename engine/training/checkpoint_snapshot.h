// CheckpointSnapshot: a checkpoint's contents in host memory, written while training continues.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "serialize/checkpoint.h"

namespace tessera {

struct CheckpointSnapshot {
  CheckpointInfo info;
  std::vector<std::vector<std::byte>> values;  // one for each of info.tensors

  // Writes the checkpoint and reports progress. kCancelled in a raised CancelScope.
  Result<WrittenCheckpoint> write(const std::string& folder) const;
};

}  // namespace tessera
