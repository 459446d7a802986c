#include "graph/transform/wanted_rows.h"

#include <algorithm>
#include <string>

namespace tessera {

namespace {

bool is_attention(const Node& node) { return node.op->context.keys >= 0; }

// Returns whether the op's rule has every token's results depend on its own rows alone, so that it also holds for future ops.
// `per_token(tensor)`: whether a tensor has rows of tokens.
template <class PerToken>
bool has_row_wise_rule(const Graph& graph, const Node& node, PerToken per_token) {
  std::vector<TensorType> inputs, outputs;
  for (TensorId input : node.inputs) inputs.push_back(graph.type(input));
  for (TensorId output : node.outputs) outputs.push_back(graph.type(output));
  const ShardingRule rule = node.op->sharding({node.attrs, inputs, outputs, {}});
  const auto first = std::ranges::find_if(node.inputs, per_token) - node.inputs.begin();
  const ShardingRule::OperandDims& rows = rule.inputs[static_cast<size_t>(first)];
  if (rows.size() < 2 || rows[0].size() != 1 || rows[1].size() != 1) return false;
  const char b = rows[0][0], t = rows[1][0];
  if (rule.find(b)->kind != FactorKind::kPass || rule.find(t)->kind != FactorKind::kPass) return false;
  const auto is_free = [&](const std::string& dim) {
    return dim.find(b) == std::string::npos && dim.find(t) == std::string::npos;
  };
  const auto follows = [&](const ShardingRule::OperandDims& dims, bool has_rows) {
    if (!has_rows) return std::ranges::all_of(dims, is_free);
    return dims.size() >= 2 && dims[0] == rows[0] && dims[1] == rows[1] && std::all_of(dims.begin() + 2, dims.end(), is_free);
  };
  for (size_t i = 0; i < rule.inputs.size(); ++i)
    if (!follows(rule.inputs[i], per_token(node.inputs[i]))) return false;
  return std::ranges::all_of(rule.outputs, [&](const auto& dims) { return follows(dims, true); });
}

}  // namespace

std::vector<uint32_t> operand_uses(const Graph& graph) {
  std::vector<uint32_t> uses(graph.tensors().size(), 0);
  for (const Node& node : graph.nodes())
    for (const TensorId input : node.inputs) ++uses[index(input)];
  return uses;
}

RequestedNodes::RequestedNodes(const Graph& graph, TensorId tokens, TensorId hidden)
    : graph_(graph), tokens_(graph.type(tokens).shape) {
  for (const Node& node : graph.nodes()) row_wise_.push_back(is_row_wise(node));
  for (bool is_changed = true; is_changed;) {
    find(hidden);
    is_changed = false;
    for (size_t i = 0; i < row_wise_.size(); ++i) {
      if (!requested_[i] || has_selectable_operands(NodeId{static_cast<uint32_t>(i)})) continue;
      row_wise_[i] = false;
      is_changed = true;
    }
  }
}

bool RequestedNodes::makes(TensorId tensor) const {
  const NodeId producer = graph_.tensor(tensor).producer;
  return producer != kNoNode && has(producer);
}

bool RequestedNodes::reads_rows(NodeId id, size_t i) const {
  const Node& node = graph_.node(id);
  return is_per_token(node.inputs[i]) && (!is_attention(node) || i == 0);
}

bool RequestedNodes::is_per_token(TensorId tensor) const {
  const Shape& shape = graph_.type(tensor).shape;
  return shape.rank() >= 2 && shape[0] == tokens_[0] && shape[1] == tokens_[1];
}

bool RequestedNodes::is_row_wise(const Node& node) const {
  const auto per_token = [&](TensorId tensor) { return is_per_token(tensor); };
  if (std::ranges::none_of(node.inputs, per_token) || !std::ranges::all_of(node.outputs, per_token)) return false;
  if (is_attention(node)) return is_per_token(node.inputs[0]);
  return !node.op->context.mixes_tokens && node.op->serve == nullptr && has_row_wise_rule(graph_, node, per_token);
}

// Returns whether the rows of operands that are computed for all tokens can be selected (select_rows).
bool RequestedNodes::has_selectable_operands(NodeId id) const {
  const Node& node = graph_.node(id);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!reads_rows(id, i) || makes(node.inputs[i])) continue;
    const TensorType& type = graph_.type(node.inputs[i]);
    if (type.shape.rank() != (type.dtype == DType::kI32 ? 2 : 3)) return false;
  }
  return true;
}

// From the last node back: those whose results are read by such nodes alone.
void RequestedNodes::find(TensorId hidden) {
  std::vector<bool> for_all(graph_.tensors().size(), false);
  if (hidden != kNoTensor) for_all[index(hidden)] = true;
  requested_.assign(row_wise_.size(), false);
  for (size_t i = row_wise_.size(); i-- > 0;) {
    const NodeId id{static_cast<uint32_t>(i)};
    const Node& node = graph_.node(id);
    requested_[i] = row_wise_[i] && std::ranges::none_of(node.outputs, [&](TensorId it) { return for_all[index(it)]; });
    for (size_t operand = 0; operand < node.inputs.size(); ++operand)
      if (!requested_[i] || !reads_rows(id, operand)) for_all[index(node.inputs[operand])] = true;
  }
}

}  // namespace tessera
