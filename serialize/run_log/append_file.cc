#include "serialize/run_log/append_file.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

namespace {

constexpr int kMostWaitMs = 2000;  // at the end, for a full pipe

// PipeSignalBlock: blocks SIGPIPE in this thread, and discards one raised by its writes.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    is_blocked_ = pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  ~PipeSignalBlock() {
    if (!is_blocked_) return;
    const int error = errno;
    const timespec now{};
    if (!was_pending_) (void)sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  PipeSignalBlock(const PipeSignalBlock&) = delete;
  PipeSignalBlock& operator=(const PipeSignalBlock&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false, is_blocked_ = false;
};

}  // namespace

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      pending_(std::move(other.pending_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile::~AppendFile() {
  if (descriptor_ < 0) return;
  pollfd room{descriptor_, POLLOUT, 0};
  while (!pending_.empty() && poll(&room, 1, kMostWaitMs) > 0 && write_pending().ok()) {
  }
  ::close(descriptor_);
}

Status AppendFile::write_pending() {
  size_t done = 0;
  Status status;
  const PipeSignalBlock block;
  while (done < pending_.size()) {
    const ssize_t written = ::write(descriptor_, pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (errno != EAGAIN) status = io_error(path_, "cannot write");
      break;
    }
    done += static_cast<size_t>(written);
  }
  pending_.erase(0, done);
  return status;
}

Status AppendFile::append(std::string_view bytes) {
  pending_ += bytes;
  Status status = write_pending();
  if (pending_.size() > kMostPendingBytes)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}; {} bytes wait to be written there, wanted {} at most: make room",
                         status.message(), pending_.size(), kMostPendingBytes));
  return status;
}

}  // namespace tessera
