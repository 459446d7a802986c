// A registry with the cpu backend, and bare devices on it or on the backend of TESSERA_TEST_BACKEND, for
// tests that talk to the vtable directly.
#pragma once

#include <doctest/doctest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "graph/base/dtype.h"
#include "runtime/backend_registry.h"
#include "runtime/backends/cpu/cpu_backend.h"
#include "runtime/host_services.h"
#include "tests/test_backend.h"

namespace tessera::test {

inline RegistryOptions cpu_options(int32_t threads = 0) {
  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.threads = threads;
  options.plugin_path = plugin_folder();
  return options;
}

// `count` devices, one stream each, and one communicator over all of them.
class Ring {
 public:
  explicit Ring(int32_t count, int32_t threads = 0) : registry_(cpu_options(threads)) {
    const auto found = registry_.find(test_backend());
    REQUIRE_MESSAGE(found.ok(), found.status().to_string());
    api_ = *found;
    devices_.resize(static_cast<size_t>(count));
    streams_.resize(devices_.size());
    comms_.resize(devices_.size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      REQUIRE(take_error(api_->device_open(&registry_.host(), ordinal_of(*api_, static_cast<int32_t>(i)),
                                           &devices_[i]))
                  .ok());
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
  // Sums are made member by member, but where each has a GPU of its own: NCCL's go round a ring.
  bool adds_in_group_order() const {
    return devices_.size() < 2 || devices_.size() > static_cast<size_t>(api_->device_count());
  }
  tsr_abi_comm* comm(int32_t i) { return comms_[static_cast<size_t>(i)]; }
  tsr_abi_stream* stream(int32_t i) { return streams_[static_cast<size_t>(i)]; }

  // One member's part of a collective on host memory, by way of memory of the device.
  Status collective(int32_t i, const tsr_abi_collective& what, const void* in, void* out) {
    const auto member = static_cast<size_t>(i);
    if (test_backend() == "cpu")
      return take_error(api_->comm_collective(comms_[member], streams_[member], &what, in, out));
    const int64_t in_bytes = bytes_in(what, i), out_bytes = bytes_out(what, i);
    void *from = nullptr, *to = nullptr;
    const auto copy = [&](const void* source, void* target, int64_t bytes) {
      return take_error(api_->copy(streams_[member], source, target, 1, bytes, bytes, bytes));
    };
    TSR_RETURN_IF_ERROR(
        take_error(api_->memory_alloc(devices_[member], 0, in_bytes, TSR_ALLOC_GUARDED, &from)));
    TSR_RETURN_IF_ERROR(
        take_error(api_->memory_alloc(devices_[member], 0, out_bytes, TSR_ALLOC_GUARDED, &to)));
    Status status = in != nullptr ? copy(in, from, in_bytes) : Status();
    void* const target = out == nullptr ? nullptr : out == in ? from : to;
    if (status.ok())
      status = take_error(api_->comm_collective(comms_[member], streams_[member], &what,
                                                in != nullptr ? from : nullptr, target));
    if (status.ok() && target != nullptr) status = copy(target, out, out_bytes);
    if (status.ok()) status = take_error(api_->stream_synchronize(streams_[member]));
    api_->memory_free(devices_[member], 0, from, in_bytes);
    api_->memory_free(devices_[member], 0, to, out_bytes);
    return status;
  }

  // Runs body(member) on one thread per member; the statuses in member order.
  template <class Body>
  std::vector<Status> on_all(Body body) {
    std::vector<Status> statuses(devices_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < devices_.size(); ++i)
      threads.emplace_back([&, i] {
        statuses[i] = body(static_cast<int32_t>(i));
        if (statuses[i].ok()) statuses[i] = take_error(api_->stream_synchronize(streams_[i]));
      });
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

 private:
  // A member's input and output, by the layouts of CollectiveInst.
  static int64_t bytes_in(const tsr_abi_collective& what, int32_t member) {
    return bytes(what, member, true);
  }
  static int64_t bytes_out(const tsr_abi_collective& what, int32_t member) {
    return bytes(what, member, false);
  }
  static int64_t bytes(const tsr_abi_collective& what, int32_t member, bool is_in) {
    if (what.dtype < 0 || what.dtype >= kDTypeCount || what.elements < 0)
      return 64;  // refused before it is looked at
    int64_t elements = what.elements;
    const auto sum = [&](const int64_t* extents) {
      return std::accumulate(extents, extents + what.member_count, int64_t{0});
    };
    if (what.extents != nullptr && (what.kind == 1 || what.kind == 2 || what.kind == 3)) {
      const bool pieces = what.kind == 3 || (what.kind == 1) == is_in;
      if (pieces) elements = what.outer * what.middle * what.inner;
      if (pieces && what.kind == 3)
        elements *=
            is_in ? what.extents[member] * sum(what.extents2) : sum(what.extents) * what.extents2[member];
      else if (pieces)
        elements *= what.extents[member];
    }
    return dtype_bytes(static_cast<DType>(what.dtype), elements);
  }

  BackendRegistry registry_;
  const tsr_backend_api* api_ = nullptr;
  std::vector<tsr_abi_device*> devices_;
  std::vector<tsr_abi_stream*> streams_;
  std::vector<tsr_abi_comm*> comms_;
};

}  // namespace tessera::test
