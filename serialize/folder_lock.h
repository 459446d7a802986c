// FolderLock: FOLDER.lock, an empty file that is locked while a training run writes its checkpoints to FOLDER. It is removed
// with this object.
#pragma once

#include <memory>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class FolderLock {
 public:
  // kBusy where another process holds it, kExists where the name is somebody's file.
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
