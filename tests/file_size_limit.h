// FileSizeLimit: while it lives, no file of the process grows beyond so many bytes: writes fail as on a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

namespace tessera::test {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace tessera::test
