// FileArena: a rank's arena of the file tier: a nameless file of
// fixed size that disappears with the process. It is read and written
// in pieces, never mapped, so it does not count as host memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class FileArena {
 public:
  // Creates it in `folder`; empty: $TMPDIR, else /tmp.
  // kIo, with folder and size, if the disk is too small.
  static Result<std::unique_ptr<FileArena>> create(const std::string& folder, int64_t bytes);
  ~FileArena();
  FileArena(const FileArena&) = delete;
  FileArena& operator=(const FileArena&) = delete;

  // Any thread; the bytes must be inside the arena.
  Status read(int64_t offset, void* out, int64_t bytes) const;
  Status write(int64_t offset, const void* in, int64_t bytes);  // in null: zero bytes
  int64_t highest() const {
    return highest_.load(std::memory_order_relaxed);
  }  // end of the last byte ever written

 private:
  explicit FileArena(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
  std::atomic<int64_t> highest_{0};
};

}  // namespace tessera
