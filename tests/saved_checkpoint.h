// A checkpoint written and put in its place.
#pragma once

#include <string>

#include "serialize/checkpoint.h"

namespace tessera {

inline Status save_checkpoint(const std::string& folder, const CheckpointInfo& info, const ReadTensor& read) {
  TSR_ASSIGN_OR_RETURN(WrittenCheckpoint written, write_checkpoint(folder, info, read));
  return written.commit();
}

}  // namespace tessera
