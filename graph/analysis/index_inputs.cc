#include "graph/analysis/index_inputs.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "graph/base/text.h"

namespace tessera {
namespace {

// The input that `tensor` is, under another shape or as it is; kNoTensor when it is made of values.
TensorId viewed_input(const Graph& graph, TensorId tensor) {
  while (graph.tensor(tensor).producer != kNoNode) {
    const Node& producer = graph.node(graph.tensor(tensor).producer);
    if (!producer.op->is_view) return kNoTensor;
    tensor = producer.inputs[0];
  }
  return graph.tensor(tensor).kind == TensorKind::kInput ? tensor : kNoTensor;
}

}  // namespace

std::vector<IndexInput> index_inputs(const Graph& graph) {
  std::map<TensorId, IndexInput> found;
  for (const Node& node : graph.nodes()) {
    const IndexOperand& index = node.op->index;
    if (index.operand < 0) continue;
    const TensorId input = viewed_input(graph, node.inputs[static_cast<size_t>(index.operand)]);
    const Tensor& into = graph.tensor(node.inputs[static_cast<size_t>(index.into)]);
    const Shape& shape = into.type.shape;
    const int64_t rows = shape[index.last_dim ? shape.rank() - 1 : 0];
    if (input == kNoTensor || is_symbol(rows)) continue;
    const std::string counted(into.name.starts_with('%') ? node.op->name : std::string_view(into.name));
    const auto [at, is_new] =
        found.try_emplace(input, IndexInput{graph.tensor(input).name, rows, index.is_label, counted});
    // An index that several ops read must suit them all.
    if (!is_new && rows < at->second.rows) at->second.rows = rows, at->second.counted = counted;
    at->second.is_label = at->second.is_label && index.is_label;
  }
  std::vector<IndexInput> inputs;
  for (auto& [tensor, input] : found) inputs.push_back(std::move(input));
  return inputs;
}

std::optional<LookUp> find_look_up(const Graph& graph, const Node& node) {
  if (node.op->weight.use != WeightUse::kRows) return std::nullopt;
  const TensorId table = node.inputs[static_cast<size_t>(node.op->weight.operand)];
  return LookUp{table, node.inputs[static_cast<size_t>(node.op->index.operand)], graph.type(table).shape[0]};
}

Status check_rows(const IndexInput& input, const HostTensor& value) {
  if (value.type.dtype != DType::kI32) return {};  // refused later, for its type
  const std::span<const int32_t> values = value.as<int32_t>();
  const auto wrong = std::ranges::find_if(values, [&](int32_t row) {
    return row >= input.rows || (row < 0 && !input.is_label);
  });
  if (wrong == values.end()) return {};
  return Status(StatusCode::kInvalidArgument,
                format("input '{}' holds {} at place {}, wanted 0 to {}{}: '{}' has {} rows", input.name, *wrong,
                       wrong - values.begin(), input.rows - 1,
                       input.is_label ? ", or -1 to leave a place out of the loss" : "", input.counted,
                       input.rows));
}

int64_t count_labels(const HostTensor& labels) {
  return std::ranges::count_if(labels.as<int32_t>(), [](int32_t label) { return label >= 0; });
}

}  // namespace tessera
