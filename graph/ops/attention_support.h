// Functions shared by the attention ops: operands, the attributes
// of scores and mask, the rule's letters, the unmasked pairs.
#pragma once

#include <string>

#include "graph/ops/op_support.h"

namespace tessera::ops {

// The attributes causal, scale, window, softcap.
extern const AttrSpec kAttentionAttrs[4];
// A query at global position t sees key j with causal = 1 where j <= t, and with a window also
// where t - j < window; with causal = 0 all keys, and with a window those with |t - j| < window.
AttrSpec window_spec();
// Scores s are c * tanh(s / c).
AttrSpec softcap_spec();

// q [B, T, H, D]; k [B, S, KV, D] and v [B, S, KV, V] of q's dtype; KV divides H. window and softcap are at least 0.
Status check_attention_operands(std::string_view op, Types inputs, Attrs attrs, int q, int k, int v);

// The attributes of attention_paged for those of attention.
std::vector<Attr> paged_attrs(Attrs attention, bool with_lse);

// Operands `first`, q_segment [B, T] i32, and the next one, k_segment [B, S] i32.
Status check_segments(std::string_view op, Types inputs, int first, int q, int k);

// Checks pages of keys or values [P, S, KV, D] of an op whose other operand has type `other`: pages have that type, are
// 16-bit floats where it is f32, or blocks of q8_0 along D where it is any float.
Status check_pages(std::string_view op, Types inputs, int index, std::string_view name, DType other);

// The shape of the sum of values for queries: [B, T, H, V].
Shape attended_shape(const Shape& q, const Shape& v);

// The letter of the values' width: d where it is the keys', else e.
char value_width(const Shape& k, const Shape& v);
// make_rule with '*' in place of that letter; s, d and e are whole.
ShardingRule attention_rule(std::string text, char value_width);

// Counts the unmasked (query, head, key) triples on the local shapes of q and k; reads the attributes "causal"
// and "window" and the shard's ranges of factors t and s. Segments are unknown here: all pairs are counted.
double visible_pairs(const OpView& view, const Shape& q, const Shape& k);

}  // namespace tessera::ops
