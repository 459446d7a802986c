// SampleOrder: the order of samples in training. The sample at place
// n is a pure function of (seed, n), so there is no state to save.
#pragma once

#include <cstdint>

namespace tessera {

// Place i of a pseudorandom permutation of 0..count-1 that depends on `key` alone and is not stored: a Feistel
// network on the next power of four, repeated until the result is in range (at most 4 rounds on average).
int64_t permuted(int64_t i, int64_t count, uint64_t key);

struct SampleOrder {
  int64_t count = 0;  // samples of an epoch
  bool shuffle = true;
  uint64_t seed = 0;

  int64_t at(int64_t place) const;  // place 0, 1, ... of the endless order; count > 0
};

}  // namespace tessera
