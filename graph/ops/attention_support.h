// Shared by the attention ops: the shapes of queries, keys and values, and the number of unmasked pairs.
#pragma once

#include "graph/ops/op_support.h"

namespace tessera::ops {

// q [B, T, H, D]; k, v [B, S, KV, D] of q's dtype; KV divides H.
Status check_attention_operands(std::string_view op, Types inputs, int q, int k, int v);

// (query, head, key) triples that are not masked, on the local shapes of q and k; reads the attribute
// "causal" and the shard's range of factor t.
double visible_pairs(const OpView& view, const Shape& q, const Shape& k);

}  // namespace tessera::ops
