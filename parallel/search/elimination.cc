#include "parallel/search/elimination.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"

namespace tessera {

namespace {

// How a point came to be: a node's way, or two points together.
struct Step {
  int32_t node = -1, way = -1;    // of a leaf
  int64_t left = -1, right = -1;  // of a pair
};

// A table over the ways of some nodes: tag of every point is an index into the steps, or -1 for none.
struct Table {
  std::vector<int32_t> nodes;  // ascending; the last varies fastest
  std::vector<Frontier> entries;
};

class Elimination {
 public:
  Elimination(const DecisionGraph& graph, int64_t budget, size_t most)
      : graph_(graph), budget_(budget), most_(most) {}

  Result<Decisions> run() {
    for (size_t v = 0; v < graph_.nodes.size(); ++v) tables_.push_back(node_table(static_cast<int32_t>(v)));
    for (const DecisionEdge& edge : graph_.edges) tables_.push_back(edge_table(edge));
    std::vector<bool> open(graph_.nodes.size(), true);
    for (size_t done = 0; done < graph_.nodes.size(); ++done) {
      const int32_t next = cheapest(open);
      open[static_cast<size_t>(next)] = false;
      remove(next);
    }
    Frontier all = {{0, 0, -1}};
    for (const Table& table : tables_) all = multiply(all, table.entries[0]);
    if (all.empty())
      return Status(StatusCode::kOutOfMemory, format("no combination of ways fits {} bytes", budget_));
    Decisions result;
    result.proved = proved_;
    for (const Tradeoff& point : all) {
      Decision decision{point.time_s, point.bytes, std::vector<int32_t>(graph_.nodes.size(), 0)};
      collect(point.tag, decision.ways);
      result.frontier.push_back(std::move(decision));
    }
    return result;
  }

 private:
  size_t ways(int32_t node) const { return graph_.nodes[static_cast<size_t>(node)].size(); }

  Table node_table(int32_t node) {
    Table table{{node}, {}};
    for (size_t way = 0; way < ways(node); ++way) {
      Tradeoff point = graph_.nodes[static_cast<size_t>(node)][way];
      point.tag = static_cast<int64_t>(steps_.size());
      steps_.push_back({node, static_cast<int32_t>(way), -1, -1});
      table.entries.push_back(admit(point));
    }
    return table;
  }

  Table edge_table(const DecisionEdge& edge) {
    const bool forward = edge.from < edge.to;
    Table table{{std::min(edge.from, edge.to), std::max(edge.from, edge.to)}, {}};
    const size_t columns = ways(edge.to);
    for (size_t a = 0; a < ways(table.nodes[0]); ++a)
      for (size_t b = 0; b < ways(table.nodes[1]); ++b) {
        Tradeoff point = edge.costs[forward ? a * columns + b : b * columns + a];
        point.tag = -1;
        table.entries.push_back(admit(point));
      }
    return table;
  }

  Frontier admit(const Tradeoff& point) const {
    return std::isfinite(point.time_s) && point.bytes <= budget_ ? Frontier{point} : Frontier{};
  }

  // The node whose elimination makes the smallest table; of equals the first.
  int32_t cheapest(const std::vector<bool>& open) const {
    int32_t best = -1;
    double best_size = INFINITY;
    for (size_t v = 0; v < open.size(); ++v) {
      if (!open[v]) continue;
      double size = 1;
      for (const int32_t other : neighbours(static_cast<int32_t>(v)))
        size *= static_cast<double>(ways(other));
      if (size < best_size) best_size = size, best = static_cast<int32_t>(v);
    }
    return best;
  }

  std::vector<int32_t> neighbours(int32_t node) const {
    std::vector<int32_t> all;
    for (const Table& table : tables_)
      if (std::ranges::binary_search(table.nodes, node))
        all.insert(all.end(), table.nodes.begin(), table.nodes.end());
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    std::erase(all, node);
    return all;
  }

  // All tables with the node become one without it: for every choice of the neighbours, the frontier over its
  // ways.
  void remove(int32_t node) {
    Table result{neighbours(node), {}};
    std::vector<Table> with;
    for (Table& table : tables_)
      if (std::ranges::binary_search(table.nodes, node)) with.push_back(std::move(table));
    std::erase_if(tables_, [](const Table& table) { return table.entries.empty(); });
    std::vector<size_t> way(graph_.nodes.size(), 0);
    const auto entry = [&](const Table& table) -> const Frontier& {
      size_t index = 0;
      for (const int32_t v : table.nodes) index = index * ways(v) + way[static_cast<size_t>(v)];
      return table.entries[index];
    };
    for (bool more = true; more;) {
      std::vector<Tradeoff> any;
      for (size_t own = 0; own < ways(node); ++own) {
        way[static_cast<size_t>(node)] = own;
        Frontier all = {{0, 0, -1}};
        for (const Table& table : with) all = multiply(all, entry(table));
        any.insert(any.end(), all.begin(), all.end());
      }
      result.entries.push_back(thin(frontier(std::move(any))));
      more = false;
      for (size_t i = result.nodes.size(); i-- > 0 && !more;) {
        const auto v = static_cast<size_t>(result.nodes[i]);
        if (++way[v] < ways(result.nodes[i]))
          more = true;
        else
          way[v] = 0;
      }
    }
    tables_.push_back(std::move(result));
  }

  Frontier multiply(const Frontier& a, const Frontier& b) {
    Frontier product = both(a, b);
    std::erase_if(product, [this](const Tradeoff& point) { return point.bytes > budget_; });
    product = thin(std::move(product));
    for (Tradeoff& point : product) {
      const int64_t left = a[static_cast<size_t>(point.tag) / b.size()].tag;
      const int64_t right = b[static_cast<size_t>(point.tag) % b.size()].tag;
      if (left < 0 || right < 0) {
        point.tag = std::max(left, right);
        continue;
      }
      point.tag = static_cast<int64_t>(steps_.size());
      steps_.push_back({-1, -1, left, right});
    }
    return product;
  }

  Frontier thin(Frontier points) {
    if (points.size() <= most_) return points;
    proved_ = false;
    Frontier some;
    for (size_t i = 0; i < most_; ++i) some.push_back(points[i * (points.size() - 1) / (most_ - 1)]);
    return some;
  }

  void collect(int64_t step, std::vector<int32_t>& ways_of) const {
    std::vector<int64_t> stack = {step};
    while (!stack.empty()) {
      const int64_t at = stack.back();
      stack.pop_back();
      if (at < 0) continue;
      const Step& one = steps_[static_cast<size_t>(at)];
      if (one.node >= 0) ways_of[static_cast<size_t>(one.node)] = one.way;
      stack.push_back(one.left), stack.push_back(one.right);
    }
  }

  const DecisionGraph& graph_;
  const int64_t budget_;
  const size_t most_;
  std::vector<Table> tables_;
  std::vector<Step> steps_;
  bool proved_ = true;
};

}  // namespace

Status check(const DecisionGraph& graph) {
  for (const auto& ways : graph.nodes)
    if (ways.empty())
      return Status(StatusCode::kInvalidArgument, "decisions: a node has no way, wanted at least one");
  const auto count = static_cast<int32_t>(graph.nodes.size());
  for (const DecisionEdge& edge : graph.edges) {
    const bool exists =
        edge.from >= 0 && edge.from < count && edge.to >= 0 && edge.to < count && edge.from != edge.to;
    if (!exists || edge.costs.size() != graph.nodes[static_cast<size_t>(edge.from)].size() *
                                            graph.nodes[static_cast<size_t>(edge.to)].size())
      return Status(
          StatusCode::kInvalidArgument,
          format("decisions: edge {} -> {} has {} costs, wanted two different nodes and one for each pair of "
                 "their ways",
                 edge.from, edge.to, edge.costs.size()));
  }
  return {};
}

Result<Decisions> eliminate(const DecisionGraph& graph, int64_t budget_bytes, size_t most_points) {
  TSR_RETURN_IF_ERROR(check(graph));
  return Elimination(graph, budget_bytes, std::max<size_t>(2, most_points)).run();
}

}  // namespace tessera
