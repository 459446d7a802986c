// AppendFile: a file that grows at its end. Bytes that the system does not take are kept in memory, and the next `append`
// continues where the file ends: a disk that is full for a while leaves no hole. A pipe that is full takes the bytes
// later, and is waited for at the end alone; one that nobody reads any more is an error, not a signal. One thread.
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

  // In one system call where it takes them; kIo names the path. kFailedPrecondition where more than kMostPendingBytes wait.
  Status append(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  Status write_pending();
  std::string path_, pending_;
  int descriptor_ = -1;
};

}  // namespace tessera
