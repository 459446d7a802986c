#include "parallel/sharding/units.h"

#include <algorithm>
#include <numeric>

#include "parallel/sharding/node_sharding.h"

namespace tessera {

MajorFactor major_factor(const ShardingRule& rule, std::string_view dim) {
  MajorFactor major;
  for (const char name : dim) {
    const int64_t extent = rule.find(name)->extent;
    if (major.name == 0) {
      if (extent != 1 || name == dim.back()) major.name = name;
    } else {
      major.span *= extent;
    }
  }
  return major;
}

namespace {

bool may_be_split(const ShardingRule& rule, char name) {
  const FactorKind kind = rule.find(name)->kind;
  return kind == FactorKind::kPass || kind == FactorKind::kReduce;
}

// "(kg)" with extents other than 1.
bool is_group_product(const ShardingRule& rule, const std::string& dim) {
  return dim.size() == 2 && rule.find(dim[0])->extent > 1 && rule.find(dim[1])->extent > 1 &&
         may_be_split(rule, dim[0]) && may_be_split(rule, dim[1]);
}

class UnitFinder {
 public:
  UnitFinder(const Graph& graph, Units& units, bool split_groups, int64_t parts)
      : graph_(graph), units_(units), split_groups_(split_groups), parts_(parts) {}

  // Heads first: their units are required, those of blocks optional.
  void run() {
    spread(false);
    spread(true);
  }

 private:
  void spread(bool from_blocks) {
    from_blocks_ = from_blocks;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t n = 0; n < graph_.nodes().size(); ++n) {
        const Node& node = graph_.nodes()[n];
        const ShardingRule& rule = units_.rules[n];
        for (size_t i = 0; i < node.inputs.size(); ++i) changed |= pass(n, node.inputs[i], rule.inputs[i]);
        for (size_t o = 0; o < node.outputs.size(); ++o) changed |= pass(n, node.outputs[o], rule.outputs[o]);
      }
    }
  }

  bool pass(size_t node, TensorId tensor, const ShardingRule::OperandDims& dims) {
    bool changed = false;
    const ShardingRule& rule = units_.rules[node];
    for (size_t d = 0; d < dims.size(); ++d) {
      const MajorFactor major = major_factor(rule, dims[d]);
      if (major.name == 0 || major.span == 0) continue;
      if (split_groups_ && is_group_product(rule, dims[d])) continue;
      int64_t& of_factor =
          units_.factors[node][static_cast<size_t>(rule.find(major.name) - rule.factors.data())];
      int64_t& of_dim = units_.dims[index(tensor)][d];
      const bool borders = graph_.tensor(tensor).kind != TensorKind::kParameter &&
                           is_packed(graph_, graph_.nodes()[node], rule, major.name);
      if (borders && !from_blocks_) continue;
      const int64_t dim = std::lcm(of_dim, major.span * of_factor);
      if (graph_.type(tensor).shape[static_cast<int>(d)] / dim < (borders ? parts_ : 1))
        continue;  // cannot be split so; unchanged
      const int64_t factor = std::lcm(of_factor, dim / major.span);
      changed |= dim != of_dim || factor != of_factor;
      of_dim = dim;
      of_factor = factor;
    }
    return changed;
  }

  const Graph& graph_;
  Units& units_;
  bool split_groups_;
  int64_t parts_;
  bool from_blocks_ = false;
};

}  // namespace

SharedHeads shared_heads(const Units& units) {
  SharedHeads least;
  for (const ShardingRule& rule : units.rules)
    for (const auto* operands : {&rule.inputs, &rule.outputs})
      for (const ShardingRule::OperandDims& dims : *operands)
        for (const std::string& dim : dims) {
          if (!is_group_product(rule, dim)) continue;
          const SharedHeads found{rule.find(dim[0])->extent, rule.find(dim[1])->extent};
          if (least.heads == 0) least = found;
          least.heads = std::min(least.heads, found.heads);
          least.queries = std::min(least.queries, found.queries);
        }
  return least;
}

bool is_packed(const Graph& graph, const Node& node, const ShardingRule& rule, char factor) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_block_type(graph.type(node.inputs[i]).dtype)) continue;
    if (!rule.inputs[i].empty() && rule.inputs[i].back().find(factor) != std::string::npos) return true;
  }
  return false;
}

Result<Units> find_units(const Graph& graph, bool split_groups, int64_t parts) {
  Units units;
  for (const Tensor& tensor : graph.tensors())
    units.dims.emplace_back(static_cast<size_t>(tensor.type.shape.rank()), int64_t{1});
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    auto rule = rule_of(graph, graph.nodes()[n]);
    if (!rule.ok()) return rule.status().with_context(describe(graph, NodeId{static_cast<uint32_t>(n)}));
    std::vector<int64_t>& factors = units.factors.emplace_back();
    for (const Factor& factor : rule->factors) factors.push_back(factor.unit);
    units.rules.push_back(std::move(*rule));
  }
  UnitFinder(graph, units, split_groups, parts).run();
  return units;
}

}  // namespace tessera
