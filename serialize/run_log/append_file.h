// AppendFile: a file that grows at its end. Bytes refused by the system stay in memory, and the next
// `append` continues at the file's end, so that a temporarily full disk leaves no gap. A full pipe takes
// bytes later and is awaited only at the end; a pipe without a reader is an error, not a signal. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "graph/base/result.h"

namespace tessera {

class AppendFile {
 public:
  static constexpr size_t kMostPendingBytes = size_t{64} << 20;

  // Owns the descriptor.
  AppendFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // Writes in one system call if possible; kIo names the path. kFailedPrecondition if more than kMostPendingBytes are pending.
  Status append(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  Status write_pending();
  std::string path_, pending_;
  int descriptor_ = -1;
};

}  // namespace tessera
