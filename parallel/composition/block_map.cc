#include "parallel/composition/block_map.h"

#include <algorithm>
#include <map>
#include <string>

#include "graph/analysis/block_scope.h"
#include "parallel/sharding/node_sharding.h"

namespace tessera {

namespace {

constexpr int32_t kUnknown = -1;

class BlockFinder {
 public:
  explicit BlockFinder(const Graph& graph) : graph_(graph), reader_(graph.tensors().size(), kUnknown) {
    map_.of_node.assign(graph.nodes().size(), kUnknown);
  }

  BlockMap run() {
    find_forward();
    for (size_t n = 0; n < map_.of_node.size(); ++n)
      if (const Node& node = graph_.nodes()[n]; node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight)
        map_.of_node[n] = backward(node);
    for (const Gradient& it : graph_.gradients()) reader_[index(it.gradient)] = reader_[index(it.parameter)];
    for (size_t n = 0; n < map_.of_node.size(); ++n)
      if (const Node& node = graph_.nodes()[n]; node.phase == Phase::kUpdate) map_.of_node[n] = update(node);
    return std::move(map_);
  }

 private:
  void find_forward() {
    std::map<std::string_view, int32_t> known;
    for (const Node& node : graph_.nodes())
      if (const std::string_view scope = block_scope(node.scope); node.phase == Phase::kForward && !scope.empty())
        known.emplace(scope, static_cast<int32_t>(known.size()) + 1);
    map_.blocks = static_cast<int32_t>(known.size());
    int32_t now = 0;
    for (size_t n = 0; n < map_.of_node.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kForward) continue;
      const std::string_view scope = block_scope(node.scope);
      if (!scope.empty()) now = known.at(scope);
      map_.of_node[n] = scope.empty() && now > 0 ? map_.after() : now;
      for (const TensorId input : node.inputs) {
        int32_t& reader = reader_[index(input)];
        if (reader == kUnknown) reader = map_.of_node[n];
      }
    }
  }

  int32_t maker(TensorId tensor) const {
    const NodeId producer = graph_.tensor(tensor).producer;
    return producer == kNoNode ? kUnknown : map_.of_node[index(producer)];
  }

  int32_t backward(const Node& node) const {
    int32_t earliest = kUnknown;
    for (const TensorId input : node.inputs)
      if (const int32_t made = maker(input); made != kUnknown) earliest = earliest == kUnknown ? made : std::min(earliest, made);
    if (node.forward == kNoNode) return std::max(earliest, 0);
    const int32_t own = map_.of_node[index(node.forward)];
    const auto rule = rule_of(graph_, node);
    const bool adds = node.inputs.size() > 1 && rule.ok() && std::ranges::any_of(rule->linear, [&](const auto& set) {
                        return set.size() == node.inputs.size();
                      });
    return adds ? std::max(own, earliest) : own;
  }

  int32_t update(const Node& node) const {
    for (const TensorId input : node.inputs)
      if (reader_[index(input)] != kUnknown && graph_.type(input).shape.rank() > 0) return reader_[index(input)];
    int32_t latest = kUnknown;
    for (const TensorId input : node.inputs) latest = std::max(latest, maker(input));
    return std::max(latest, 0);
  }

  const Graph& graph_;
  BlockMap map_;
  std::vector<int32_t> reader_;  // by tensor: the first block that reads it; for a gradient, its parameter's
};

}  // namespace

BlockMap find_blocks(const Graph& step) { return BlockFinder(step).run(); }

}  // namespace tessera
