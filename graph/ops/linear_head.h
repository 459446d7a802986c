// linear_head: the output head x w^T inside an op that reads its logits and keeps none (linear_cross_entropy.cc,
// linear_token_losses.cc): checks, rules and costs of operands x [..., C] and w [V, C].
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/ops/op_support.h"
#include "graph/phases.h"

namespace tessera::linear_head {

using namespace ops;

inline const AttrSpec kAttrs[] = {allow_tf32_spec()};
inline const AttrSpec kGradAttrs[] = {
    {"weight_grad", AttrType::kI64, AttrValue(int64_t{1}), "0: w is not trained, there is no dw"},
    allow_tf32_spec(),
};
bool has_weight_grad(Attrs attrs);

// Letters of the rows; c and v are those of w.
std::string rows_of(const OpView& view);

// Operands x [..., C], w [V, C].
Status check_operands(std::string_view op, Types in);
Status check_labels(std::string_view op, Types in, int i);
Status check_scalar(std::string_view op, Types in, int i, std::string_view name);

TensorType scalar_of(const TensorType& x);
TensorType statistic_of(const TensorType& x);  // of each row

// c is whole: no loss is linear in logits that are addends.
ShardingRule rule(const std::string& text);

// Operations a logit: maximum and sum of exponentials; dlogits.
inline constexpr double kStatistics = 5, kGradient = 4;
// Cost of `products` matmuls of the head and `others` operations a logit. Logits stay in the workspace.
OpCost cost(const OpView& view, double products, double others);

// Phases that a split vocabulary admits: every row's maximum, then its sum of exponentials and the logit of its label.
struct RowPhases {
  TensorId max = kNoTensor, sum = kNoTensor, picked = kNoTensor;
};
Result<RowPhases> emit_row_phases(PhaseBuilder& b);

}  // namespace tessera::linear_head
