// ThreadWorld: a transport between threads that stand for processes: each opens its end with `options_of(process)`, and has devices
// and sessions of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/transport.h"

namespace tessera::test {

class ThreadWorld {
 public:
  explicit ThreadWorld(int32_t processes);
  ~ThreadWorld();

  static const tsr_transport_api& api();
  TransportOptions options_of(int32_t process);

  // Runs `body` as every process, each in a thread of its own, to the end. `host` outlives it.
  static void run(int32_t processes, const tsr_host_api& host,
                  const std::function<void(const std::shared_ptr<Transport>&)>& body);

  struct Impl;
  struct End;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::test
