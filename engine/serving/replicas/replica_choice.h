// choose_replica: the replica that computes a new request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

struct ReplicaLoad {
  int64_t expected_tokens = 0;  // estimate for the requests it has
  int64_t cached_tokens = 0;    // of the new prompt, in its pages
};

// Returns the replica that finishes the prompt first: its expected tokens plus the uncached
// tokens of the prompt are fewest. So a prompt goes to its cached prefix unless the queue there
// costs more than computing it elsewhere. Ties: the lowest number. `loads` are not empty.
size_t choose_replica(std::span<const ReplicaLoad> loads);

}  // namespace tessera
