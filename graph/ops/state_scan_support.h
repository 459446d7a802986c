// Functions shared by the ops that scan tokens with a state: operands, attributes, the rule's letters, flops.
#pragma once

#include <string>

#include "graph/ops/op_support.h"

namespace tessera::ops {

// The attributes rule and scale.
extern const AttrSpec kScanAttrs[2];

// The number of operands of a scan without segments: 5, or 6 with rule general.
int scan_operand_count(Attrs attrs);

// From operand `first` on: q, k [B, T, G, K] and v [B, T, H, V] of one float type, G divides H; log_decay [B, T, H] or
// [B, T, H, K] f32 (f64 for f64); beta [B, T, H] of either type, or with rule general a, b as k. `behind` others follow.
Status check_scan_operands(std::string_view op, Types inputs, Attrs attrs, int first, int behind);
// The same with segments [B, T] last, optional.
Status check_segmented_scan(std::string_view op, Types inputs, Attrs attrs, int first);

// The dims of these operands in a rule; t and k are whole.
std::string scan_operands_rule(Types inputs, Attrs attrs, int first);

// Flops for each number of each token's state: decay, S^T k or S^T a, update, S^T q.
double scan_flops(Types inputs, Attrs attrs, int first);
// B * T * H * K * V of the operands.
double scan_state_elements(Types inputs, int first);

}  // namespace tessera::ops
