#include "engine/data/sample_order.h"

#include "engine/model/initialize.h"

namespace tessera {

int64_t permuted(int64_t i, int64_t count, uint64_t key) {
  int half_bits = 1;
  while ((int64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = static_cast<uint64_t>(i);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (random_bits(key + round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

int64_t SampleOrder::at(int64_t place) const {
  const int64_t epoch = place / count, i = place % count;
  return shuffle ? permuted(i, count, random_bits(seed, static_cast<uint64_t>(epoch))) : i;
}

}  // namespace tessera
