#include "serialize/run_log/append_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      pending_(std::move(other.pending_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status AppendFile::append(std::string_view bytes) {
  pending_ += bytes;
  size_t done = 0;
  Status status;
  while (done < pending_.size()) {
    const ssize_t written = write(descriptor_, pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      status = io_error(path_, "cannot write");
      break;
    }
    done += static_cast<size_t>(written);
  }
  pending_.erase(0, done);
  if (pending_.size() > kMostPendingBytes)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}; {} bytes wait to be written there, wanted {} at most: make room",
                         status.message(), pending_.size(), kMostPendingBytes));
  return status;
}

}  // namespace tessera
