// BoxOwners: where the pieces of one tensor are, over all processes. A box that several ranks hold is the lowest one's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/sharding_spec.h"
#include "runtime/transport.h"

namespace tessera {

struct BoxOwner {
  Box box;
  int32_t rank = 0;
  bool is_everywhere = false;  // some rank of every process holds it
};

// `held`: the boxes of the ranks that live here. Sorted by box, the same in every process. Collective over the world.
Result<std::vector<BoxOwner>> find_box_owners(Channel& channel, std::span<const std::pair<int32_t, Box>> held);

}  // namespace tessera
