// SpanningGroup: a communicator whose members live in several processes. Bytes move over a transport, in one exchange for all
// members of a process; members of one process read each other's memory. Additions are made here: the member that
// owns an element gets every member's value of it, and adds in group order, so that results have the bits of one process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm_end.h"
#include "runtime/transport.h"

namespace tessera {

// The devices of this process that are members, and what the group needs to know of its process.
struct SpanningMembers {
  std::span<const int32_t> processes;        // of every member, by position
  std::span<tsr_abi_device* const> devices;  // of those that live here, by ascending position
};

// One end for each of these devices. Collective over the members' processes. `channel` outlives the ends. `use`: the calls that will be
// made, for which memory is prepared.
Result<std::vector<std::unique_ptr<CommEnd>>> join_spanning_group(Channel& channel, const tsr_backend_api& api,
                                                                  const tsr_host_api& host, const SpanningMembers& members,
                                                                  const tsr_abi_comm_use& use);

}  // namespace tessera
