// CheckpointSnapshot: a checkpoint's contents in host memory, written while the trainer goes on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "serialize/checkpoint.h"

namespace tessera {

struct CheckpointSnapshot {
  CheckpointInfo info;
  std::vector<std::vector<std::byte>> values;  // one for each of info.tensors

  // Writes the checkpoint and reports progress. kCancelled within a CancelScope that was raised.
  Result<WrittenCheckpoint> write(const std::string& folder) const;
};

}  // namespace tessera
