#include "parallel/planner/plan_blocks.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/base/text.h"

namespace tessera {

namespace {

// "block.3.attention" -> "block.3"; "embedding" is unchanged.
std::string block_of(const std::string& scope) {
  const std::vector<std::string> parts = split(scope, '.');
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].empty() && std::ranges::all_of(parts[i], [](char c) { return c >= '0' && c <= '9'; })) {
      std::vector<std::string> head(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return join(head, ".");
    }
  return scope.empty() ? std::string("(no scope)") : parts[0];
}

std::string without_block(const std::string& name, const std::string& block) {
  return name.starts_with(block + ".") ? name.substr(block.size() + 1) : name;
}

class BlockFinder {
 public:
  explicit BlockFinder(const EntryLayout& layout) : layout_(layout) {}

  std::vector<BlockDecision> run() {
    const Graph& graph = layout_.graph;
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      if (node.phase == Phase::kForward) add(NodeId{static_cast<uint32_t>(n)}, node);
    }
    for (BlockDecision& block : blocks_) finish(block);
    return merged();
  }

 private:
  void add(NodeId id, const Node& node) {
    const std::string name = block_of(node.scope);
    auto known = std::ranges::find(blocks_, name, &BlockDecision::name);
    if (known == blocks_.end()) {
      known = blocks_.insert(blocks_.end(), BlockDecision{});
      known->name = name;
      known->stage = layout_.nodes_plan(id).stage;
    }
    BlockDecision& block = *known;
    block.chunks = std::max(block.chunks, layout_.nodes_plan(id).chunks);
    std::string weight;
    for (const TensorId input : node.inputs) {
      const Tensor& tensor = layout_.tensor(input);
      if (tensor.kind != TensorKind::kParameter) continue;
      if (weight.empty()) weight = without_block(tensor.name, name);
      if (seen_.insert(index(input)).second)
        block.parameters.emplace_back(without_block(tensor.name, name), stored_text(input));
    }
    const NodeSharding& sharding = layout_.nodes[index(id)];
    const bool contracts = std::ranges::any_of(sharding.rule.factors,
                                               [](const Factor& f) { return f.kind == FactorKind::kReduce; });
    if (!weight.empty() || contracts)
      block.ops.emplace_back(
          weight.empty() ? std::string(node.op->name) : format("{} {}", node.op->name, weight),
          factor_text(sharding, layout_.mesh));
    for (const TensorId output : node.outputs) {
      ++made_[name];
      block.recomputed += layout_.recompute[index(output)] ? 1 : 0;
      block.offloaded += layout_.offload[index(output)] != Tier::kDevice ? 1 : 0;
    }
  }

  std::string stored_text(TensorId id) const {
    std::string text = to_text(layout_.spec[index(id)], layout_.mesh);
    if (layout_.tier[index(id)] == Tier::kHost) text += " on the host";
    if (layout_.tier[index(id)] == Tier::kFile) text += " in a file";
    return text;
  }

  void finish(BlockDecision& block) {
    const int64_t made = made_[block.name];
    block.recompute = block.recomputed == 0 ? "none" : format("{} of {} activations", block.recomputed, made);
  }

  std::vector<BlockDecision> merged() const {
    std::vector<BlockDecision> all;
    std::string first;
    for (const BlockDecision& block : blocks_) {
      const auto alike = [&](const BlockDecision& other) {
        return other.stage == block.stage && other.ops == block.ops && other.parameters == block.parameters &&
               other.recompute == block.recompute && other.offloaded == block.offloaded &&
               other.chunks == block.chunks && block.name.find('.') != std::string::npos &&
               first.substr(0, first.rfind('.')) == block.name.substr(0, block.name.rfind('.'));
      };
      if (!all.empty() && alike(all.back())) {
        ++all.back().count;
        all.back().name = format("{} to {}", first, block.name.substr(block.name.rfind('.') + 1));
        continue;
      }
      all.push_back(block);
      first = block.name;
    }
    return all;
  }

  const EntryLayout& layout_;
  std::vector<BlockDecision> blocks_;
  std::map<std::string, int64_t> made_;
  std::set<size_t> seen_;
};

}  // namespace

std::string factor_text(const NodeSharding& sharding, const DeviceMesh& mesh) {
  std::vector<std::string> parts;
  for (size_t f = 0; f < sharding.factors.size() && f < sharding.rule.factors.size(); ++f) {
    std::vector<std::string> axes;
    for (const AxisId axis : sharding.factors[f].axes) axes.push_back(mesh.axes[axis].name);
    if (!axes.empty())
      parts.push_back(format("{} over {}", std::string(1, sharding.rule.factors[f].name), join(axes, "+")));
  }
  return parts.empty() ? "whole" : join(parts, ", ");
}

std::vector<BlockDecision> explain_blocks(const EntryLayout& layout) { return BlockFinder(layout).run(); }

}  // namespace tessera
