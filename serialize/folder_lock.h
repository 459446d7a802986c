// FolderLock: FOLDER.lock, an empty locked file while a training
// run writes checkpoints to FOLDER. Removed with this object.
#pragma once

#include <memory>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class FolderLock {
 public:
  // kBusy if another process holds it, kExists if the name is another file.
  static Result<std::unique_ptr<FolderLock>> acquire(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  FolderLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  int descriptor_;  // -1: not held
};

}  // namespace tessera
