#include "graph/transform/draft_block.h"

#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

// Marks the tensors that these outputs need.
std::vector<bool> needed_by(const Graph& graph, const std::vector<TensorId>& results) {
  std::vector<bool> needed(graph.tensors().size());
  for (const TensorId result : results) needed[index(result)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool is_needed = false;
    for (const TensorId output : node.outputs) is_needed = is_needed || needed[index(output)];
    if (!is_needed) continue;
    for (const TensorId output : node.outputs) needed[index(output)] = true;
    for (const TensorId input : node.inputs) needed[index(input)] = true;
  }
  return needed;
}

// Copies the chosen tensors, in order; outputs are left to the caller.
Status copy_chosen(GraphCopy& copy, const std::vector<bool>& chosen) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = copy.source().tensor(id);
    if (!chosen[i]) continue;
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  return {};
}

}  // namespace

bool has_draft_block(const Graph& graph) { return graph.find_output(kDraftLogits).has_value(); }

Result<Graph> without_draft_block(const Graph& graph) {
  const auto drafts = graph.find_output(kDraftLogits);
  if (!drafts) return graph;
  std::vector<TensorId> results;
  for (const NamedTensor& output : graph.outputs())
    if (output.tensor != *drafts) results.push_back(output.tensor);
  const std::vector<bool> by_drafts = needed_by(graph, {*drafts}), by_others = needed_by(graph, results);
  std::vector<bool> chosen(graph.tensors().size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = by_others[i] || !by_drafts[i];
  GraphCopy copy(graph);
  TSR_RETURN_IF_ERROR(copy_chosen(copy, chosen));
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Result<Graph> draft_block_of(const Graph& graph) {
  const auto drafts = graph.find_output(kDraftLogits);
  if (!drafts)
    return Status(StatusCode::kInvalidArgument,
                  "the model has no block that predicts further tokens (MTP): wanted a file with its tensors, mtp.* or "
                  "blk.*.nextn.*, or speculation ngram, or draft with a draft_model");
  GraphCopy copy(graph);
  TSR_RETURN_IF_ERROR(copy_chosen(copy, needed_by(graph, {*drafts})));
  TSR_RETURN_IF_ERROR(copy.graph().add_output("logits", copy.mapped(*drafts)));
  return std::move(copy.graph());
}

}  // namespace tessera
