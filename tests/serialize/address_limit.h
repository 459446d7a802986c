// AddressLimit: an allocation that a file's size does not explain fails.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tessera::testing {

// AddressLimit: while it lives the process may take 64 MiB of addresses more than it has; an allocation of
// more throws. Nothing under the address sanitizer, which takes terabytes.
class AddressLimit {
 public:
  AddressLimit() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (int64_t{64} << 20));
    is_set_ = setrlimit(RLIMIT_AS, &limit) == 0;
#endif
  }
  ~AddressLimit() {
    if (is_set_) setrlimit(RLIMIT_AS, &before_);
  }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
  bool is_set_ = false;
};

}  // namespace tessera::testing
