#include "parallel/planner/explained_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "graph/base/text.h"
#include "parallel/sharding/rule_factors.h"
#include "parallel/sharding/units.h"

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

// UnsplitRows: one weight's rows, and the axes that do not cut them.
struct UnsplitRows {
  std::string weight;  // "block.*.down q4_0[64, 96]"
  int64_t extent = 0, unit = 1, ranks = 1;
  std::string axes;
  bool has_columns = false;  // the axes split the other dim
  int64_t count = 1;

  bool is_like(const UnsplitRows& other) const {
    return weight == other.weight && extent == other.extent && unit == other.unit && axes == other.axes &&
           has_columns == other.has_columns;
  }
};

// "block.12.down" -> "block.*.down"
std::string without_numbers(const std::string& name) {
  std::vector<std::string> parts = split(name, '.');
  for (std::string& part : parts)
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) part = "*";
  return join(parts, ".");
}

// The parameter with blocks along the factor; kNoTensor: none.
TensorId packed_weight(const EntryLayout& layout, const Node& node, const ShardingRule& rule, char factor) {
  if (!is_packed(layout.graph, node, rule, factor)) return kNoTensor;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (layout.tensor(node.inputs[i]).kind == TensorKind::kParameter && !rule.inputs[i].empty() &&
        rule.inputs[i].back().find(factor) != std::string::npos)
      return node.inputs[i];
  return kNoTensor;
}

// The weight of node `id` whose rows stay whole although dim `d` of input
// `i`, which they multiply, could be cut; nullopt if the rows are cut too.
std::optional<UnsplitRows> find_unsplit_rows(const EntryLayout& layout, NodeId id, size_t i, size_t d) {
  const Node& node = layout.graph.node(id);
  const NodeSharding& sharding = layout.nodes[index(id)];
  const MajorFactor major = major_factor(sharding.rule, sharding.rule.inputs[i][d]);
  if (major.name == 0) return std::nullopt;
  const TensorId weight = packed_weight(layout, node, sharding.rule, major.name);
  if (weight == kNoTensor) return std::nullopt;
  const Factor& factor = *sharding.rule.find(major.name);
  const auto& own = sharding.factors[static_cast<size_t>(&factor - sharding.rule.factors.data())].axes;
  const DimSharding& arrives = layout.spec[index(node.inputs[i])].dims[d];
  if (std::ranges::all_of(arrives.axes, [&](AxisId axis) { return contains(own, axis); }))
    return std::nullopt;
  UnsplitRows rows;
  rows.weight =
      format("{} {}", without_numbers(layout.tensor(weight).name), to_text(layout.tensor(weight).type));
  rows.extent = factor.extent * major.span;
  rows.unit = std::lcm(arrives.unit, factor.unit * major.span);
  for (const AxisId axis : arrives.axes) {
    rows.ranks *= layout.mesh.axis_size(axis);
    rows.axes += (rows.axes.empty() ? "" : "+") + layout.mesh.axes[axis].name;
    rows.has_columns =
        rows.has_columns || std::ranges::any_of(sharding.factors, [&](const DimSharding& split) {
          return contains(split.axes, axis);
        });
  }
  return rows.extent / rows.unit < rows.ranks ? std::optional(std::move(rows)) : std::nullopt;
}

std::string sentence(const UnsplitRows& it) {
  const std::string weights = it.count > 1 ? format("{} weights {}", it.count, it.weight) : it.weight;
  return format(
      "{}: rows of {} in {} whole units of {} (blocks, heads) are too few for the {} ranks of {}: {}",
      weights, it.extent, it.extent / it.unit, it.unit, it.ranks, it.axes,
      it.has_columns ? "each rank has whole rows, what they multiply and make is gathered"
                     : "each rank has all of them, what they multiply is gathered");
}

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

std::vector<std::string> explain_unsplit_weights(const EntryLayout& layout) {
  std::vector<UnsplitRows> found;
  for (size_t n = 0; n < layout.graph.nodes().size(); ++n) {
    const Node& node = layout.graph.nodes()[n];
    if (node.phase != Phase::kForward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (layout.tensor(node.inputs[i]).kind == TensorKind::kParameter) continue;
      for (size_t d = 0; d < layout.nodes[n].rule.inputs[i].size(); ++d) {
        std::optional<UnsplitRows> rows = find_unsplit_rows(layout, NodeId{static_cast<uint32_t>(n)}, i, d);
        if (!rows) continue;
        const auto known =
            std::ranges::find_if(found, [&](const UnsplitRows& it) { return it.is_like(*rows); });
        if (known == found.end())
          found.push_back(*std::move(rows));
        else
          ++known->count;
      }
    }
  }
  std::vector<std::string> sentences;
  for (const UnsplitRows& it : found) sentences.push_back(sentence(it));
  return sentences;
}

}  // namespace tessera
