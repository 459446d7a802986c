// choose_replica: which replica of an engine computes a new request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

struct ReplicaLoad {
  int64_t expected_tokens = 0;  // that are likely to be computed of the requests it has
  int64_t cached_tokens = 0;    // of the prompt in question, that its pages hold
};

// The replica with the least to compute until the prompt is: what it has to do already, and of the prompt what its pages do
// not hold. So a prompt goes where its beginning is cached, unless the others there take longer than computing it again
// elsewhere. On a tie the lowest number. `loads` are not empty.
size_t choose_replica(std::span<const ReplicaLoad> loads);

}  // namespace tessera
