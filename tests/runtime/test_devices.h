// A registry with the cpu backend, and bare devices on it, for tests that talk to the vtable directly.
#pragma once

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "runtime/backend_registry.h"
#include "runtime/backends/cpu/cpu_backend.h"
#include "runtime/host_services.h"

namespace tessera::test {

inline RegistryOptions cpu_options(int32_t threads = 0) {
  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.threads = threads;
  return options;
}

// `count` devices, one stream each, and one communicator over all of them.
class Ring {
 public:
  explicit Ring(int32_t count, int32_t threads = 0) : registry_(cpu_options(threads)) {
    api_ = registry_.find("cpu").value();
    devices_.resize(static_cast<size_t>(count));
    streams_.resize(devices_.size());
    comms_.resize(devices_.size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      REQUIRE(take_error(api_->device_open(&registry_.host(), static_cast<int32_t>(i), &devices_[i])).ok());
      REQUIRE(take_error(api_->stream_create(devices_[i], &streams_[i])).ok());
    }
    REQUIRE(take_error(api_->comm_create(devices_.data(), count, comms_.data())).ok());
  }
  ~Ring() {
    for (size_t i = 0; i < devices_.size(); ++i) {
      api_->comm_destroy(comms_[i]);
      api_->stream_destroy(streams_[i]);
      api_->device_close(devices_[i]);
    }
  }
  const tsr_backend_api& api() const { return *api_; }
  tsr_abi_comm* comm(int32_t i) { return comms_[static_cast<size_t>(i)]; }
  tsr_abi_stream* stream(int32_t i) { return streams_[static_cast<size_t>(i)]; }

  // Runs body(member) on one thread per member; the statuses in member order.
  template <class Body>
  std::vector<Status> on_all(Body body) {
    std::vector<Status> statuses(devices_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < devices_.size(); ++i)
      threads.emplace_back([&, i] { statuses[i] = body(static_cast<int32_t>(i)); });
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

 private:
  BackendRegistry registry_;
  const tsr_backend_api* api_ = nullptr;
  std::vector<tsr_abi_device*> devices_;
  std::vector<tsr_abi_stream*> streams_;
  std::vector<tsr_abi_comm*> comms_;
};

}  // namespace tessera::test
