#include "runtime/backend_comm.h"

#include <cstddef>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

bool can_create_for_use(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, comm_create_for) + sizeof(api.comm_create_for) &&
         api.comm_create_for != nullptr;
}

class BackendEnd : public CommEnd {
 public:
  BackendEnd(const tsr_backend_api& api, tsr_abi_comm* comm) : api_(api), comm_(comm) {}
  ~BackendEnd() override { api_.comm_destroy(comm_); }

  Status collective(tsr_abi_stream* stream, const tsr_abi_collective& what, const void* in, void* out) override {
    return take_error(api_.comm_collective(comm_, stream, &what, in, out));
  }
  Status send(tsr_abi_stream* stream, int32_t peer, const void* in, int64_t bytes) override {
    return take_error(api_.comm_send(comm_, stream, peer, in, bytes));
  }
  Status receive(tsr_abi_stream* stream, int32_t peer, void* out, int64_t bytes) override {
    return take_error(api_.comm_recv(comm_, stream, peer, out, bytes));
  }
  void abort() override { api_.comm_abort(comm_); }
  Status perturb(uint64_t seed) override {
    if (api_.struct_size < offsetof(tsr_backend_api, comm_perturb) + sizeof(api_.comm_perturb) ||
        api_.comm_perturb == nullptr)
      return Status(StatusCode::kUnsupported, format("backend '{}' cannot be perturbed", api_.name));
    api_.comm_perturb(comm_, seed);
    return {};
  }
  tsr_abi_comm_counters counters() const override {
    tsr_abi_comm_counters counters{};
    counters.struct_size = sizeof(counters);
    api_.comm_counters(comm_, &counters);
    return counters;
  }

 private:
  const tsr_backend_api& api_;
  tsr_abi_comm* const comm_;
};

}  // namespace

Result<std::vector<std::unique_ptr<CommEnd>>> make_backend_comm(const tsr_backend_api& api,
                                                                std::span<tsr_abi_device* const> devices,
                                                                const tsr_abi_comm_use& use) {
  const auto count = static_cast<int32_t>(devices.size());
  std::vector<tsr_abi_comm*> comms(devices.size());
  TSR_RETURN_IF_ERROR(take_error(can_create_for_use(api)
                                     ? api.comm_create_for(devices.data(), count, &use, comms.data())
                                     : api.comm_create(devices.data(), count, comms.data())));
  std::vector<std::unique_ptr<CommEnd>> ends;
  for (tsr_abi_comm* comm : comms) ends.push_back(std::make_unique<BackendEnd>(api, comm));
  return ends;
}

}  // namespace tessera
