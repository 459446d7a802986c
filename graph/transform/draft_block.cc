#include "graph/transform/draft_block.h"

#include <span>
#include <vector>

#include "graph/transform/prune.h"

namespace tessera {

bool has_draft_block(const Graph& graph) { return graph.find_output(kDraftLogits).has_value(); }

Result<Graph> without_draft_block(const Graph& graph) {
  const auto drafts = graph.find_output(kDraftLogits);
  if (!drafts) return graph;
  std::vector<TensorId> results;
  for (const NamedTensor& output : graph.outputs())
    if (output.tensor != *drafts) results.push_back(output.tensor);
  const std::vector<bool> by_drafts = needed_by(graph, std::span(&*drafts, 1)), by_others = needed_by(graph, results);
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
  TSR_RETURN_IF_ERROR(copy_chosen(copy, needed_by(graph, std::span(&*drafts, 1))));
  TSR_RETURN_IF_ERROR(copy.graph().add_output("logits", copy.mapped(*drafts)));
  return std::move(copy.graph());
}

}  // namespace tessera
