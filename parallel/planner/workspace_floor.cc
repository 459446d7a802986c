#include "parallel/planner/workspace_floor.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "parallel/sharding/schedule.h"
#include "parallel/strategy/propagation.h"

namespace tessera {

WorkspaceFloor::WorkspaceFloor(const Graph& graph, const SpaceOfGraph& space)
    : graph_(graph), space_(space) {}

const WorkspaceFloor::Largest& WorkspaceFloor::largest(int64_t batch) {
  const auto [at, is_new] = largest_.try_emplace(batch);
  Largest& most = at->second;
  if (!is_new) return most;
  const std::pair<std::string, int64_t> value("B", batch);
  const bool has_batch = std::ranges::any_of(graph_.symbols(), [](const Symbol& s) { return s.name == "B"; });
  const Result<Graph> bound = graph_.bind(std::span(&value, has_batch ? 1 : 0));
  if (!bound.ok()) return most;  // no bound
  const Graph& graph = *bound;
  for (const Node& node : graph.nodes()) {
    // Updates may run next to their state, on the host.
    if (node.op->is_view || node.phase == Phase::kUpdate) continue;
    std::map<TensorId, int64_t> values, parameters;  // by root: the largest view
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!reads_input(node, i)) continue;
      const TensorId root = viewed(graph, node.inputs[i]);
      const TensorKind kind = graph.tensor(root).kind;
      if (kind != TensorKind::kActivation && kind != TensorKind::kParameter) continue;
      int64_t& size = (kind == TensorKind::kParameter ? parameters : values)[root];
      size = std::max(size, tessera::bytes(graph.type(node.inputs[i])));
    }
    int64_t read = 0, weights = 0, written = 0;
    for (const auto& [id, size] : values) read += size;
    for (const auto& [id, size] : parameters) weights += size;
    // Results may reuse operands' buffers.
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if (o >= node.op->in_place.size() || node.op->in_place[o] < 0)
        written += tessera::bytes(graph.type(node.outputs[o]));
    if (parameters.empty() && node.phase != Phase::kBackwardWeight) {
      most.other = std::max(most.other, read + written);
      continue;
    }
    most.product = std::max(most.product, read + written);
    most.weighted = std::max(most.weighted, read + written + weights);
  }
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kInput))
    most.inputs += tessera::bytes(graph.type(id));
  return most;
}

WorkspaceFloor::Cut WorkspaceFloor::cut_of(const StrategySpec& spec) const {
  Cut cut;
  if (const auto count = micro_batches_of(spec, space_.batch, space_.may_cut); count.ok()) cut.count = *count;
  const bool replicated = !space_.trains && space_.batch < spec.data();
  cut.batch = std::max<int64_t>(1, replicated ? space_.batch : space_.batch / spec.data() / cut.count);
  return cut;
}

int64_t WorkspaceFloor::input_bytes(const StrategySpec& spec) {
  const Cut cut = cut_of(spec);
  return cut.count * largest(cut.batch).inputs / (int64_t{spec.tp} * spec.cp * spec.ep);
}

int64_t WorkspaceFloor::bytes(const StrategySpec& spec) {
  // Weights instead of sequences are split; other parts apply.
  if (spec.owt) return 0;
  const Largest& most = largest(cut_of(spec).batch);
  // Gathered or fetched copies exist in addition to stored ones.
  const bool comes = spec.offload.params != Tier::kDevice || (spec.zero == 3 && spec.data() * spec.cp > 1);
  const int64_t product = (comes ? most.weighted : most.product) / spec.chunks;
  // All ranks of a stage run the kernel, so the fullest holds at least the average.
  const int64_t at_work = std::max(most.other, product) / (int64_t{spec.tp} * spec.cp * spec.ep);
  // A pipeline's kernel may be on a stage without the input.
  return spec.pp == 1 ? at_work + input_bytes(spec) : at_work;
}

}  // namespace tessera
