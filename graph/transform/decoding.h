// Graph -> graph: a forward language model becomes its incremental form, with KV caches as state and sampling as an
// op. Works on any model whose attention is the `attention` op and whose positions come from input "positions".
#pragma once

#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct DecodingOptions {
  int64_t cache_capacity = 0;  // S: tokens a sequence may hold, prompt included
  bool sample = true;          // append the `sample` op
};

// Inputs: "tokens" i32[B, T], "start" i32[B] (tokens already in the cache), "length" i32[B] (valid tokens of this
// chunk, <= T), and when sampling "temperature" f32[], "top_k" i32[], "top_p" f32[], "seed" i64[] (per-step counter
// added by the op from start + length). Positions are computed as start + 0..T-1. Attention nodes become
// cache_write + attention_cached with state "<scope>.k_cache", "<scope>.v_cache" [B, S, KV, D].
// Rotations with two rows of factors (LongRoPE) take the first where cache_capacity is at most rope_switch; else there
// is an input "rope_row" i32[1], 1 for the first row and 2 for the second, in all sequences. Sequences that grow beyond
// the switch must be computed again from their first token: keys in the caches were rotated by the first row.
// Outputs: "logits" f32[B, V] of the last valid position, "token" i32[B].
// Symbols left: B and T. Prefill and decode are two bindings of T of this one graph.
Result<Graph> make_decoding(const Graph& forward, const DecodingOptions& options);

}  // namespace tessera
