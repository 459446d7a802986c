#include "serialize/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/temporary_names.h"

namespace tessera {

namespace {

// The last holder may remove the file between opening and locking.
constexpr int kMostAttempts = 100;

// Whether the open file is a lock, i.e. empty; others must not be removed.
bool is_lock(int descriptor) {
  struct stat found {};
  return ::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0;
}

}  // namespace

Result<std::unique_ptr<FolderLock>> FolderLock::acquire(const std::string& folder) {
  const std::string path = folder + ".lock";
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor < 0) return io_error(path, "cannot create");
    std::unique_ptr<FolderLock> lock(new FolderLock(path, descriptor));
    const auto refuse = [&](StatusCode code, std::string message) {
      ::close(std::exchange(lock->descriptor_, -1));
      return Status(code, std::move(message));
    };
    if (!is_lock(descriptor))
      return refuse(kExists, path + ": is no lock of a training, which is an empty file; move it away");
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return refuse(kBusy, format("{}: another training writes its checkpoints there; wait for its end, or give another "
                                  "folder (options out, checkpoint)",
                                  folder));
    if (is_same_file(descriptor, path)) return lock;
    ::close(std::exchange(lock->descriptor_, -1));
  }
  return Status(kBusy, path + ": cannot be locked, others create and remove it all the time");
}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace tessera
