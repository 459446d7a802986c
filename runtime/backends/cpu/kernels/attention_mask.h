// AttentionMask: the keys that a query of a shard sees. Keys of other shards do not count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/factor_index.h"

namespace tessera::cpu {

struct AttentionMask {
  // Local indices [begin, end); where it is empty both are 0.
  struct Keys {
    int64_t begin = 0, end = 0;
  };

  bool causal = true;
  int64_t window = 0;  // 0: none
  int64_t S = 0;       // keys of the shard
  FactorIndex t_index, s_index;

  // Keys that the query at local index t sees.
  Keys keys(int64_t t) const {
    const int64_t position = t_index.to_global(t);
    Keys seen{0, S};
    if (causal)
      seen.end = s_index.count_before(position + 1);
    else if (window > 0)
      seen.end = s_index.count_before(position + window);
    if (window > 0) seen.begin = s_index.count_before(position - window + 1);
    return seen.begin < seen.end ? seen : Keys{};
  }
};

inline AttentionMask attention_mask(const KernelSpec& spec, int64_t S, bool causal) {
  return {causal, spec.i64("window"), S, FactorIndex(spec.factor('t')), FactorIndex(spec.factor('s'))};
}

}  // namespace tessera::cpu
