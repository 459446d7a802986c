// A tree of buckets, one for each node in the order of elimination. Bucket i has the tables that node i is
// the first of to be eliminated, and the messages of buckets before it: minima over their node, tables over
// the neighbours that it had then. Passes up the tree give the minimum for one price of bytes; passes down
// give, for each message entry, the least that everything outside of it costs.
#include "parallel/search/best_decision.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <span>

#include "graph/base/text.h"

namespace tessera {

namespace {

struct Bucket {
  int32_t node = 0;
  std::vector<int32_t> scope;    // neighbours when it is eliminated, ascending, without the node
  size_t entries = 1;            // of its message: combinations of the scope
  std::vector<size_t> edges;     // of the graph
  std::vector<size_t> children;  // buckets whose messages end here
  size_t parent = SIZE_MAX;      // none: the message is a constant
  std::vector<double> message;   // minima at the current price
  std::vector<double> outside;   // at the current price
  std::vector<int32_t> way;      // of the node, that is least
};

class BestDecisionSearch {
 public:
  BestDecisionSearch(const DecisionGraph& graph, int64_t budget, size_t most_points, size_t most_entries)
      : graph_(graph), budget_(budget), most_points_(most_points), most_entries_(most_entries) {}

  Result<BestDecision> run() {
    TSR_RETURN_IF_ERROR(make_buckets());
    way_.assign(graph_.nodes.size(), 0);
    const Decision fastest = minimise(1, 0);
    if (!std::isfinite(fastest.time_s))
      return Status(StatusCode::kInvalidArgument, "every combination of ways has an edge that is impossible");
    if (fastest.bytes <= budget_) return BestDecision{fastest, fastest.time_s, true};
    // Bytes alone, with a trace of time to choose among equals.
    Decision best = minimise(0, 1);
    if (best.bytes > budget_)
      return Status(StatusCode::kOutOfMemory,
                    format("no combination of ways fits {} bytes; the smallest budget that would is {}",
                           budget_, best.bytes));
    // Prices at which the two neighbours on the lower hull cost the same: tightest where the budget lies
    // between them.
    double bound = fastest.time_s, price = 0;
    for (Decision over = fastest, under = best; over.bytes > under.bytes;) {
      const double l = (under.time_s - over.time_s) / static_cast<double>(over.bytes - under.bytes);
      if (!(l > 0)) break;
      const Decision found = minimise(1, l);
      const double value = found.time_s + l * static_cast<double>(found.bytes - budget_);
      if (value > bound) bound = value, price = l;
      if (found.bytes <= budget_ && better(found, best)) best = found;
      const double line = over.time_s + l * static_cast<double>(over.bytes - budget_);
      if (value >= line - 1e-12 * std::abs(line)) break;  // nothing below the line between the two
      (found.bytes > budget_ ? over : under) = found;
    }
    return close(std::move(best), bound, price);
  }

 private:
  static bool better(const Decision& a, const Decision& b) {
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.bytes < b.bytes;
  }
  size_t ways(int32_t node) const { return graph_.nodes[static_cast<size_t>(node)].size(); }

  Status make_buckets() {
    const size_t count = graph_.nodes.size();
    std::vector<std::vector<bool>> joined(count, std::vector<bool>(count));
    for (const DecisionEdge& edge : graph_.edges) {
      const auto a = static_cast<size_t>(edge.from), b = static_cast<size_t>(edge.to);
      joined[a][b] = joined[b][a] = true;
    }
    std::vector<bool> open(count, true);
    std::vector<size_t> bucket_of(count);
    for (size_t done = 0; done < count; ++done) {
      double least = INFINITY;
      size_t next = 0;
      for (size_t v = 0; v < count; ++v) {
        if (!open[v]) continue;
        double size = 1;
        for (size_t u = 0; u < count; ++u)
          if (open[u] && joined[v][u]) size *= static_cast<double>(ways(static_cast<int32_t>(u)));
        if (size < least) least = size, next = v;
      }
      if (least * static_cast<double>(ways(static_cast<int32_t>(next))) > static_cast<double>(most_entries_))
        return Status(StatusCode::kUnsupported,
                      format("the decision graph is too entangled: a table of {} entries, at most {} wanted",
                             least, most_entries_));
      open[next] = false;
      bucket_of[next] = done;
      Bucket& bucket = buckets_.emplace_back();
      bucket.node = static_cast<int32_t>(next);
      for (size_t u = 0; u < count; ++u)
        if (open[u] && joined[next][u]) bucket.scope.push_back(static_cast<int32_t>(u));
      for (const int32_t u : bucket.scope) {
        bucket.entries *= ways(u);
        for (const int32_t w : bucket.scope)
          if (u != w) joined[static_cast<size_t>(u)][static_cast<size_t>(w)] = true;
      }
      bucket.message.resize(bucket.entries);
      bucket.outside.resize(bucket.entries);
      bucket.way.resize(bucket.entries);
    }
    for (size_t e = 0; e < graph_.edges.size(); ++e)
      buckets_[std::min(bucket_of[static_cast<size_t>(graph_.edges[e].from)],
                        bucket_of[static_cast<size_t>(graph_.edges[e].to)])]
          .edges.push_back(e);
    for (size_t i = 0; i < count; ++i) {
      for (const int32_t u : buckets_[i].scope)
        buckets_[i].parent = std::min(buckets_[i].parent, bucket_of[static_cast<size_t>(u)]);
      if (buckets_[i].parent != SIZE_MAX) buckets_[buckets_[i].parent].children.push_back(i);
    }
    return {};
  }

  // Calls visit(entry) for every combination of the scope, with way_ set.
  template <class Visit>
  void for_each(const Bucket& bucket, Visit visit) {
    for (const int32_t u : bucket.scope) way_[static_cast<size_t>(u)] = 0;
    for (size_t entry = 0; entry < bucket.entries; ++entry) {
      visit(entry);
      for (size_t i = bucket.scope.size(); i-- > 0;) {
        const auto u = static_cast<size_t>(bucket.scope[i]);
        if (++way_[u] < graph_.nodes[u].size()) break;
        way_[u] = 0;
      }
    }
  }

  size_t entry_of(const Bucket& bucket) const {
    size_t entry = 0;
    for (const int32_t u : bucket.scope) entry = entry * ways(u) + way_[static_cast<size_t>(u)];
    return entry;
  }

  // The node's own way and the edges of a bucket, as way_ says.
  Tradeoff own(const Bucket& bucket) const {
    const auto node = static_cast<size_t>(bucket.node);
    Tradeoff sum = graph_.nodes[node][way_[node]];
    for (const size_t e : bucket.edges) {
      const DecisionEdge& edge = graph_.edges[e];
      const Tradeoff& cost = edge.costs[way_[static_cast<size_t>(edge.from)] * ways(edge.to) +
                                        way_[static_cast<size_t>(edge.to)]];
      sum.time_s += cost.time_s;
      sum.bytes += cost.bytes;
    }
    return sum;
  }

  double weigh(const Tradeoff& cost) const {
    if (!std::isfinite(cost.time_s)) return INFINITY;
    return time_weight_ * cost.time_s + byte_weight_ * static_cast<double>(cost.bytes);
  }

  // The least sum of weights * (time, bytes) over all combinations.
  Decision minimise(double time_weight, double byte_weight) {
    time_weight_ = time_weight, byte_weight_ = byte_weight;
    for (Bucket& bucket : buckets_)
      for_each(bucket, [&](size_t entry) {
        double least = INFINITY;
        for (size_t way = 0; way < ways(bucket.node); ++way) {
          way_[static_cast<size_t>(bucket.node)] = way;
          double sum = weigh(own(bucket));
          for (const size_t child : bucket.children)
            sum += buckets_[child].message[entry_of(buckets_[child])];
          if (way == 0 || sum < least) least = sum, bucket.way[entry] = static_cast<int32_t>(way);
        }
        bucket.message[entry] = least;
      });
    Decision found{0, 0, std::vector<int32_t>(graph_.nodes.size())};
    for (const Bucket& bucket : std::ranges::reverse_view(buckets_)) {
      const auto node = static_cast<size_t>(bucket.node);
      found.ways[node] = bucket.way[entry_of(bucket)];
      way_[node] = static_cast<size_t>(found.ways[node]);
    }
    for (const Bucket& bucket : buckets_) {
      const Tradeoff cost = own(bucket);
      found.time_s += cost.time_s, found.bytes += cost.bytes;
    }
    return found;
  }

  // After minimise: what everything outside of each message costs at least, by entry.
  void look_outside() {
    for (size_t i = buckets_.size(); i-- > 0;) {
      Bucket& bucket = buckets_[i];
      if (bucket.parent == SIZE_MAX) {
        double others = 0;
        for (size_t j = 0; j < buckets_.size(); ++j)
          if (j != i && buckets_[j].parent == SIZE_MAX) others += buckets_[j].message[0];
        bucket.outside[0] = others;
      }
      for (const size_t child : bucket.children) std::ranges::fill(buckets_[child].outside, INFINITY);
      for_each(bucket, [&](size_t entry) {
        for (size_t way = 0; way < ways(bucket.node); ++way) {
          way_[static_cast<size_t>(bucket.node)] = way;
          const double self = weigh(own(bucket)) + bucket.outside[entry];
          if (!std::isfinite(self)) continue;
          double all = 0;
          for (const size_t child : bucket.children)
            all += buckets_[child].message[entry_of(buckets_[child])];
          for (const size_t child : bucket.children) {
            const size_t at = entry_of(buckets_[child]);
            const double mine = buckets_[child].message[at];
            if (!std::isfinite(mine) || !std::isfinite(all)) continue;
            double& least = buckets_[child].outside[at];
            least = std::min(least, self + all - mine);
          }
        }
      });
    }
  }

  // How a point came to be: a way of a node, or two points together.
  struct Step {
    int32_t node = -1, way = -1;
    int64_t left = -1, right = -1;
  };

  Result<BestDecision> close(Decision best, double bound, double price) {
    BestDecision result{std::move(best), bound, true};
    // Least bytes of the rest, then least weighed sum of the rest.
    minimise(0, 1);
    look_outside();
    std::vector<std::vector<double>> rest_bytes, least_bytes;
    for (Bucket& bucket : buckets_)
      rest_bytes.push_back(bucket.outside), least_bytes.push_back(bucket.message);
    minimise(1, price);
    look_outside();
    const double spare = price * static_cast<double>(budget_);
    const double tolerance = 1e-12 * std::abs(result.decision.time_s);
    std::vector<std::vector<Frontier>> messages(buckets_.size());
    Frontier constant = {{0, 0, -1}};
    for (size_t i = 0; i < buckets_.size(); ++i) {
      Bucket& bucket = buckets_[i];
      messages[i].resize(bucket.entries);
      for_each(bucket, [&](size_t entry) {
        std::vector<Tradeoff> any;
        for (size_t way = 0; way < ways(bucket.node); ++way) {
          way_[static_cast<size_t>(bucket.node)] = way;
          Tradeoff point = own(bucket);
          if (!std::isfinite(point.time_s)) continue;
          // What is still to come for a partial sum: messages not multiplied yet, and everything outside.
          double rest = bucket.outside[entry], rest_least = rest_bytes[i][entry];
          for (const size_t child : bucket.children) {
            const size_t at = entry_of(buckets_[child]);
            rest += buckets_[child].message[at], rest_least += least_bytes[child][at];
          }
          const auto hopeless = [&](const Tradeoff& p) {
            return static_cast<double>(p.bytes) + rest_least > static_cast<double>(budget_) ||
                   p.time_s + price * static_cast<double>(p.bytes) + rest - spare >=
                       result.decision.time_s + tolerance;
          };
          if (hopeless(point)) continue;
          point.tag = static_cast<int64_t>(steps_.size());
          steps_.push_back({bucket.node, static_cast<int32_t>(way), -1, -1});
          Frontier all = {point};
          for (const size_t child : bucket.children) {
            const size_t at = entry_of(buckets_[child]);
            rest -= buckets_[child].message[at], rest_least -= least_bytes[child][at];
            all = multiply(all, messages[child][at], hopeless, result.proved);
            if (all.empty()) break;
          }
          any.insert(any.end(), all.begin(), all.end());
        }
        messages[i][entry] = thin(frontier(std::move(any)), result.proved);
      });
      for (const size_t child : bucket.children) messages[child].clear();
      if (bucket.parent == SIZE_MAX)
        constant = multiply(
            constant, messages[i][0], [&](const Tradeoff& p) { return p.bytes > budget_; }, result.proved);
    }
    // The fastest that is left stands last.
    if (!constant.empty() && constant.back().time_s < result.decision.time_s) {
      result.decision.time_s = constant.back().time_s;
      result.decision.bytes = constant.back().bytes;
      collect(constant.back().tag, result.decision.ways);
    }
    if (result.proved) result.bound_s = result.decision.time_s;
    return result;
  }

  template <class Hopeless>
  Frontier multiply(const Frontier& a, const Frontier& b, const Hopeless& hopeless, bool& proved) {
    Frontier product = both(a, b);
    std::erase_if(product, hopeless);
    product = thin(std::move(product), proved);
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

  Frontier thin(Frontier points, bool& proved) const {
    if (points.size() <= most_points_) return points;
    proved = false;
    Frontier some;
    for (size_t i = 0; i < most_points_; ++i)
      some.push_back(points[i * (points.size() - 1) / (most_points_ - 1)]);
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
  const size_t most_points_, most_entries_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> way_;  // by node, while tables are visited
  std::vector<Step> steps_;
  double time_weight_ = 1, byte_weight_ = 0;
};

}  // namespace

Result<BestDecision> best_decision(const DecisionGraph& graph, int64_t budget_bytes, size_t most_points,
                                   size_t most_entries) {
  TSR_RETURN_IF_ERROR(check(graph));
  return BestDecisionSearch(graph, budget_bytes, std::max<size_t>(2, most_points), most_entries).run();
}

}  // namespace tessera
