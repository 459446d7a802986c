// BackendComm: ends of a communicator of one backend, between devices of this process.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/comm_end.h"

namespace tessera {

// One end for each device, in their order. `use`: the calls that will be made, which some backends prepare for.
Result<std::vector<std::unique_ptr<CommEnd>>> make_backend_comm(const tsr_backend_api& api,
                                                                std::span<tsr_abi_device* const> devices,
                                                                const tsr_abi_comm_use& use);

}  // namespace tessera
