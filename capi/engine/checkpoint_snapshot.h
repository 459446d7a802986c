// CheckpointSnapshot: what a checkpoint holds, copied to host memory: it is written while the trainer goes on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "serialize/checkpoint.h"

namespace tessera {

struct CheckpointSnapshot {
  CheckpointInfo info;
  std::vector<std::vector<std::byte>> values;  // one for each of info.tensors

  // kCancelled within a CancelScope that was raised; reports its progress.
  Result<WrittenCheckpoint> write(const std::string& folder) const;
};

}  // namespace tessera
