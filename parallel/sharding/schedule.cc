#include "parallel/sharding/schedule.h"

#include <algorithm>
#include <map>

namespace tessera {

bool reads_input(const Node& node, size_t i) {
  return std::ranges::find(node.op->shape_only, static_cast<int>(i)) == node.op->shape_only.end();
}

TensorId viewed(const Graph& graph, TensorId tensor) {
  for (;;) {
    const Tensor& t = graph.tensor(tensor);
    if (t.producer == kNoNode || !graph.node(t.producer).op->is_view) return tensor;
    tensor = graph.node(t.producer).inputs[0];
  }
}

namespace {

// For every update node its earliest position in the last micro-batch: after the last
// producer of its operands, and after the last reader of an old value that it replaces.
std::vector<size_t> update_positions(const Graph& graph, int32_t delay) {
  const std::span<const Node> nodes = graph.nodes();
  std::map<TensorId, size_t> last_read;  // of tensors changed by updates, by nodes of other phases
  for (const Update& update : graph.updates()) last_read[update.target] = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].phase == Phase::kUpdate) continue;
    for (size_t i = 0; i < nodes[n].inputs.size(); ++i) {
      const auto at = last_read.find(viewed(graph, nodes[n].inputs[i]));
      if (at != last_read.end() && reads_input(nodes[n], i)) at->second = n;
    }
  }
  std::vector<size_t> last_replaced(nodes.size(), 0);  // by node: last read of the values it replaces
  for (const Update& update : graph.updates())
    if (const NodeId producer = graph.tensor(update.value).producer; producer != kNoNode)
      last_replaced[index(producer)] = std::max(last_replaced[index(producer)], last_read[update.target]);
  std::vector<size_t> position(nodes.size(), 0);
  for (size_t n = 0; n < nodes.size(); ++n) {
    position[n] = n;
    if (nodes[n].phase != Phase::kUpdate) continue;
    position[n] = 0;
    for (size_t i = 0; i < nodes[n].inputs.size(); ++i) {
      const NodeId producer = graph.tensor(nodes[n].inputs[i]).producer;
      if (producer == kNoNode) continue;
      const size_t wait = graph.node(producer).phase == Phase::kUpdate ? 0 : static_cast<size_t>(delay);
      position[n] = std::max(position[n], std::min(position[index(producer)] + wait, nodes.size() - 1));
    }
    position[n] = std::max(position[n], last_replaced[n]);
  }
  return position;
}

}  // namespace

std::vector<Task> schedule(const Graph& graph, int32_t micro_batches, int32_t delay) {
  const std::span<const Node> nodes = graph.nodes();
  std::vector<Task> tasks;
  for (int32_t j = 0; j + 1 < micro_batches; ++j)
    for (size_t n = 0; n < nodes.size(); ++n)
      if (nodes[n].phase != Phase::kUpdate) tasks.push_back({NodeId{static_cast<uint32_t>(n)}, j});

  const std::vector<size_t> position = update_positions(graph, delay);
  std::vector<size_t> order(nodes.size());
  for (size_t n = 0; n < order.size(); ++n) order[n] = n;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const bool ua = nodes[a].phase == Phase::kUpdate, ub = nodes[b].phase == Phase::kUpdate;
    return position[a] != position[b] ? position[a] < position[b] : ua < ub;
  });
  for (const size_t n : order) tasks.push_back({NodeId{static_cast<uint32_t>(n)}, micro_batches - 1});
  return tasks;
}

}  // namespace tessera
