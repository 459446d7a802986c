// Bytes that cross machines.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

// Bytes that the ranks of `program` send to other nodes in a run of the entry, as the runtime's transport moves them: inputs of a sum go to
// their owners, a sum once to each other node (docs/reference/runtime.md).
int64_t network_bytes(const Program& program, std::string_view entry, const Cluster& cluster);

}  // namespace tessera
