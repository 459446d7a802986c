#include "parallel/planner/operation_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "graph/base/text.h"
#include "parallel/lowering/lower.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/simulator.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/reshard.h"
#include "parallel/sharding/schedule.h"
#include "parallel/sharding/units.h"

namespace tessera {

namespace {

// What an axis does at a node.
struct AxisUse {
  char factor = 0;  // 0: nothing, unless it carries
  int32_t carry_set = -1;
};

class SpaceMaker {
 public:
  SpaceMaker(const Graph& graph, const DeviceMesh& mesh, const Cluster& cluster, const KernelCatalog& catalog)
      : graph_(graph), cluster_(cluster), catalog_(catalog), resharder_(mesh) {
    space_.mesh = mesh;
    for (size_t a = 0; a < mesh.axes.size(); ++a)
      if (mesh.axes[a].size > 1) axes_.push_back(static_cast<AxisId>(a));
    coordinates_.assign(mesh.axes.size(), 0);  // larger parts come first
  }

  Result<OperationSpace> make() {
    TSR_ASSIGN_OR_RETURN(units_, find_units(graph_));
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      TSR_RETURN_IF_ERROR(add_node(NodeId{static_cast<uint32_t>(n)}));
    decision_of_.assign(graph_.tensors().size(), -1);
    for (size_t t = 0; t < graph_.tensors().size(); ++t)
      if (graph_.tensors()[t].kind != TensorKind::kActivation) add_tensor(TensorId{static_cast<uint32_t>(t)});
    for (size_t n = 0; n < graph_.nodes().size(); ++n) TSR_RETURN_IF_ERROR(add_edges(n));
    return std::move(space_);
  }

 private:
  const DeviceMesh& mesh() const { return space_.mesh; }

  int64_t local_bytes(const TensorType& type, const ShardingSpec& spec) const {
    return dtype_bytes(type.dtype, local_shape(type.shape, spec, mesh(), coordinates_).elements());
  }

  // Seconds of the largest rank's kernel; nothing when there is none.
  std::optional<double> kernel_seconds(NodeId id, const NodeSharding& sharding) const {
    const Node& node = graph_.node(id);
    const auto local = [&](TensorId tensor, const ShardingSpec& spec) {
      const TensorType& type = graph_.type(tensor);
      return TensorType{type.dtype, local_shape(type.shape, spec, mesh(), coordinates_)};
    };
    std::vector<TensorType> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(local(node.inputs[i], sharding.inputs[i]));
    for (size_t o = 0; o < node.outputs.size(); ++o)
      outputs.push_back(local(node.outputs[o], sharding.outputs[o]));
    const std::vector<FactorView> views = factor_views(sharding, mesh(), coordinates_);
    const auto choice = catalog_.query(*node.op, {node.attrs, inputs, outputs, views});
    return choice.ok() ? std::optional(choice->seconds) : std::nullopt;
  }

  Status add_node(NodeId id) {
    const ShardingRule& rule = units_.rules[index(id)];
    std::vector<AxisUse> uses = {{}};
    for (const Factor& factor : rule.factors)
      if (factor.kind != FactorKind::kReplicate && factor.extent > 1) uses.push_back({factor.name, -1});
    for (size_t s = 0; s < rule.linear.size(); ++s)
      if (!rule.linear[s].empty()) uses.push_back({0, static_cast<int32_t>(s)});
    std::vector<NodePlan>& plans = space_.nodes.emplace_back();
    std::vector<NodeSharding>& shardings = shardings_.emplace_back();
    std::vector<Tradeoff>& ways = space_.decisions.nodes.emplace_back();
    std::vector<size_t> use(axes_.size(), 0);
    for (bool more = true; more;) {
      // Where a factor takes several axes, which of them is major is another choice.
      std::vector<size_t> order(axes_.size());
      std::iota(order.begin(), order.end(), size_t{0});
      do {
        const std::optional<NodePlan> plan = plan_with(id, uses, use, order);
        if (plan) consider(id, *plan, plans, shardings, ways);
      } while (shares_a_factor(uses, use) && std::ranges::next_permutation(order).found);
      more = false;
      for (size_t a = 0; a < use.size() && !more; ++a) {
        if (++use[a] < uses.size())
          more = true;
        else
          use[a] = 0;
      }
    }
    if (ways.empty())
      return Status(StatusCode::kUnsupported,
                    format("{} has no kernel in any of its shardings", describe(graph_, id)));
    return {};
  }

  static bool shares_a_factor(const std::vector<AxisUse>& uses, const std::vector<size_t>& use) {
    for (size_t a = 0; a < use.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (use[a] == use[b] && uses[use[a]].factor != 0) return true;
    return false;
  }

  std::optional<NodePlan> plan_with(NodeId id, const std::vector<AxisUse>& uses,
                                    const std::vector<size_t>& use, const std::vector<size_t>& order) const {
    const ShardingRule& rule = units_.rules[index(id)];
    NodePlan plan;
    for (const size_t a : order) {
      const AxisUse& it = uses[use[a]];
      if (it.carry_set >= 0) {
        if (plan.carry_set >= 0 && plan.carry_set != it.carry_set) return std::nullopt;
        plan.carry_set = it.carry_set;
        plan.carried.push_back(axes_[a]);
      }
      if (it.factor == 0) continue;
      const auto at =
          std::ranges::find(plan.factor_axes, it.factor, &std::pair<char, std::vector<AxisId>>::first);
      if (at != plan.factor_axes.end()) {
        at->second.push_back(axes_[a]);
        continue;
      }
      plan.factor_axes.push_back({it.factor, {axes_[a]}});
      const auto f = static_cast<size_t>(rule.find(it.factor) - rule.factors.data());
      const int64_t unit = units_.factors[index(id)][f];
      if (unit != rule.factors[f].unit) plan.factor_units.emplace_back(it.factor, unit);
    }
    std::ranges::sort(plan.factor_axes);
    std::ranges::sort(plan.carried);
    std::ranges::sort(plan.factor_units);
    return plan;
  }

  // Of ways that want and leave the same layouts only the fastest stays.
  void consider(NodeId id, const NodePlan& plan, std::vector<NodePlan>& plans,
                std::vector<NodeSharding>& shardings, std::vector<Tradeoff>& ways) const {
    auto sharding = shard_node(graph_, id, plan, mesh());
    if (!sharding.ok()) return;
    const auto seconds = kernel_seconds(id, *sharding);
    if (!seconds) return;
    int64_t bytes = 0;
    for (size_t o = 0; o < graph_.node(id).outputs.size(); ++o)
      bytes += local_bytes(graph_.type(graph_.node(id).outputs[o]), sharding->outputs[o]);
    for (size_t w = 0; w < ways.size(); ++w)
      if (shardings[w].inputs == sharding->inputs && shardings[w].outputs == sharding->outputs) {
        if (*seconds < ways[w].time_s) plans[w] = plan, shardings[w] = *sharding, ways[w].time_s = *seconds;
        return;
      }
    plans.push_back(plan);
    shardings.push_back(std::move(*sharding));
    ways.push_back({*seconds, bytes, 0});
  }

  // Every axis on a dim or on none.
  void add_tensor(TensorId id) {
    const TensorType& type = graph_.type(id);
    const auto rank = static_cast<size_t>(type.shape.rank());
    std::vector<ShardingSpec> specs = {ShardingSpec::replicated(type.shape.rank())};
    for (const AxisId axis : axes_)
      for (size_t s = 0, count = specs.size(); s < count; ++s)
        for (size_t d = 0; d < rank; ++d)
          for (const bool minor : {true, false}) {
            ShardingSpec spec = specs[s];
            DimSharding& dim = spec.dims[d];
            if (!minor && dim.axes.empty()) continue;
            dim.axes.insert(minor ? dim.axes.end() : dim.axes.begin(), axis);
            dim.unit = units_.dims[index(id)][d];
            int64_t parts = 1;
            for (const AxisId a : dim.axes) parts *= mesh().axis_size(a);
            if (type.shape[static_cast<int>(d)] / dim.unit >= parts) specs.push_back(std::move(spec));
          }
    decision_of_[index(id)] = static_cast<int32_t>(space_.decisions.nodes.size());
    std::vector<Tradeoff>& ways = space_.decisions.nodes.emplace_back();
    for (const ShardingSpec& spec : specs) ways.push_back({0, local_bytes(type, spec), 0});
    space_.tensors.push_back(id);
    space_.stored.push_back(std::move(specs));
  }

  double move_seconds(const Move& move, const TensorType& type) const {
    if (move.kind == MoveKind::kSlice || move.kind == MoveKind::kPartialize) return 0;
    CollectiveInst collective;
    collective.dtype = type.dtype;
    int32_t members = 1;
    for (const AxisId axis : move.axes) members *= mesh().axis_size(axis);
    const int64_t before = local_shape(type.shape, move.before, mesh(), coordinates_).elements(),
                  after = local_shape(type.shape, move.after, mesh(), coordinates_).elements();
    collective.elements = std::max(before, after);
    collective.kind = move.kind == MoveKind::kAllGather       ? CollectiveKind::kAllGather
                      : move.kind == MoveKind::kReduceScatter ? CollectiveKind::kReduceScatter
                      : move.kind == MoveKind::kAllReduce     ? CollectiveKind::kAllReduce
                                                              : CollectiveKind::kAllToAll;
    return collective_seconds(collective, members, cluster_.link);
  }

  double path_seconds(const ShardingSpec& from, const ShardingSpec& to, const TensorType& type) {
    const auto path = resharder_.path(from, to, type.shape, type.dtype);
    if (!path.ok()) return INFINITY;
    double seconds = 0;
    for (const Move& move : path->moves) seconds += move_seconds(move, type);
    return seconds;
  }

  // Between the layouts in which a tensor is left and wanted; equal ones are priced once.
  Status add_edges(size_t n) {
    const Node& node = graph_.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId tensor = node.inputs[i];
      if (!reads_input(node, i)) continue;
      const Tensor& it = graph_.tensor(tensor);
      std::vector<const ShardingSpec*> left, wanted;
      int32_t from = decision_of_[index(tensor)];
      if (from >= 0) {
        for (const ShardingSpec& spec : space_.stored[static_cast<size_t>(from) - graph_.nodes().size()])
          left.push_back(&spec);
      } else {
        from = static_cast<int32_t>(index(it.producer));
        for (const NodeSharding& way : shardings_[index(it.producer)])
          left.push_back(&way.outputs[it.output_index]);
      }
      for (const NodeSharding& way : shardings_[n]) wanted.push_back(&way.inputs[i]);
      std::map<std::pair<ShardingSpec, ShardingSpec>, double> known;
      DecisionEdge edge{from, static_cast<int32_t>(n), {}};
      for (const ShardingSpec* a : left)
        for (const ShardingSpec* b : wanted) {
          const auto [at, fresh] = known.try_emplace({*a, *b}, 0);
          if (fresh) at->second = path_seconds(*a, *b, it.type);
          edge.costs.push_back({at->second, 0, 0});
        }
      space_.decisions.edges.push_back(std::move(edge));
    }
    return {};
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  Resharder resharder_;
  OperationSpace space_;
  std::vector<AxisId> axes_;
  std::vector<int32_t> coordinates_;
  Units units_;
  std::vector<std::vector<NodeSharding>> shardings_;  // by node and way
  std::vector<int32_t> decision_of_;                  // by tensor; -1: a node makes it
};

}  // namespace

Result<OperationSpace> operation_space(const Graph& graph, const DeviceMesh& mesh, const Cluster& cluster,
                                       const KernelCatalog& catalog) {
  if (!graph.symbols().empty() && std::ranges::any_of(graph.tensors(), [](const Tensor& tensor) {
        return std::ranges::any_of(tensor.type.shape.dims(), [](int64_t extent) { return extent < 0; });
      }))
    return Status(StatusCode::kInvalidArgument,
                  "operations are planned on a graph without symbols; bind B and the others first");
  return SpaceMaker(graph, mesh, cluster, catalog).make();
}

Plan plan_of(const OperationSpace& space, const Graph& graph, const std::vector<int32_t>& ways) {
  Plan plan;
  plan.graph_fingerprint = graph.fingerprint();
  plan.strategy = "by operation";
  plan.stages = {Stage{space.mesh}};
  for (size_t n = 0; n < space.nodes.size(); ++n)
    plan.nodes.push_back(space.nodes[n][static_cast<size_t>(ways[n])]);
  for (size_t t = 0; t < space.tensors.size(); ++t) {
    const auto way = static_cast<size_t>(ways[space.nodes.size() + t]);
    plan.stored.push_back({space.tensors[t], {Placement{0, space.stored[t][way], Tier::kDevice}}});
  }
  return plan;
}

Result<OperationPlan> plan_operations(const Graph& graph, const DeviceMesh& mesh, const Cluster& cluster,
                                      const KernelCatalog& catalog, int64_t budget_bytes) {
  TSR_ASSIGN_OR_RETURN(const OperationSpace space, operation_space(graph, mesh, cluster, catalog));
  TSR_ASSIGN_OR_RETURN(const BestDecision best, best_decision(space.decisions, budget_bytes));
  OperationPlan result;
  result.plan = plan_of(space, graph, best.decision.ways);
  result.seconds = best.decision.time_s;
  result.bytes = best.decision.bytes;
  result.bound_s = best.bound_s;
  result.proved = best.proved;
  result.plan.estimate.step_time_s = result.seconds;
  result.plan.estimate.gap = (result.seconds - result.bound_s) / result.seconds;
  return result;
}

Result<double> simulated_seconds(const Graph& graph, const Plan& plan, const Cluster& cluster,
                                 const KernelCatalog& catalog) {
  const EntrySpec entry{"step", &graph, &plan};
  TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), catalog));
  TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, "step", cluster));
  return simulation.seconds();
}

namespace {

// Kernels alone, and collectives alone with every conversion shared among all readers of the value: a lowered
// program takes at least either.
struct Parts {
  double kernels = 0, collectives = 0;
  int64_t bytes = 0;
  double bound() const { return std::max(kernels, collectives); }
};

class Bounds {
 public:
  explicit Bounds(const DecisionGraph& decisions) : kernels(decisions), collectives(decisions) {
    // A value's readers are the edges that leave its decision; of a node with several results all of them.
    std::vector<double> readers(decisions.nodes.size(), 0);
    for (const DecisionEdge& edge : decisions.edges) readers[static_cast<size_t>(edge.from)] += 1;
    for (DecisionEdge& edge : kernels.edges)
      for (Tradeoff& cost : edge.costs)
        if (std::isfinite(cost.time_s)) cost.time_s = 0;
    for (DecisionEdge& edge : collectives.edges)
      for (Tradeoff& cost : edge.costs) cost.time_s /= readers[static_cast<size_t>(edge.from)];
    for (auto& ways : collectives.nodes)
      for (Tradeoff& way : ways) way.time_s = 0;
  }
  Parts of(const std::vector<int32_t>& ways) const {
    const Tradeoff a = sum(kernels, ways), b = sum(collectives, ways);
    return {a.time_s, b.time_s, a.bytes};
  }

  DecisionGraph kernels, collectives;

 private:
  static Tradeoff sum(const DecisionGraph& graph, const std::vector<int32_t>& ways) {
    Tradeoff all;
    for (size_t v = 0; v < ways.size(); ++v) {
      const Tradeoff& way = graph.nodes[v][static_cast<size_t>(ways[v])];
      all.time_s += way.time_s, all.bytes += way.bytes;
    }
    for (const DecisionEdge& edge : graph.edges)
      all.time_s += edge.costs[static_cast<size_t>(ways[static_cast<size_t>(edge.from)]) *
                                   graph.nodes[static_cast<size_t>(edge.to)].size() +
                               static_cast<size_t>(ways[static_cast<size_t>(edge.to)])]
                        .time_s;
    return all;
  }
};

bool next(std::vector<int32_t>& ways, const DecisionGraph& graph) {
  for (size_t v = 0; v < ways.size(); ++v) {
    if (static_cast<size_t>(++ways[v]) < graph.nodes[v].size()) return true;
    ways[v] = 0;
  }
  return false;
}

// Simulation rounds every instruction to whole nanoseconds.
double rounded_down(double seconds, const DecisionGraph& graph) {
  return seconds - 1e-9 * static_cast<double>(graph.nodes.size() + 4 * graph.edges.size());
}

}  // namespace

Result<SimulatedPlan> plan_operations_simulated(const Graph& graph, const DeviceMesh& mesh,
                                                const Cluster& cluster, const KernelCatalog& catalog,
                                                int64_t budget_bytes, int64_t most_plans) {
  TSR_ASSIGN_OR_RETURN(const OperationSpace space, operation_space(graph, mesh, cluster, catalog));
  const Bounds bounds(space.decisions);
  TSR_ASSIGN_OR_RETURN(const BestDecision priced, best_decision(space.decisions, budget_bytes));
  struct Candidate {
    double bound = 0;
    std::vector<int32_t> ways;
  };
  std::vector<Candidate> candidates;
  SimulatedPlan result;
  double plans = 1, rest = INFINITY;  // no plan that is not a candidate is faster than `rest`
  for (const auto& ways : space.decisions.nodes) plans *= static_cast<double>(ways.size());
  if (plans <= static_cast<double>(most_plans)) {
    std::vector<int32_t> ways(space.decisions.nodes.size(), 0);
    do {
      const Parts parts = bounds.of(ways);
      if (parts.bytes <= budget_bytes && std::isfinite(parts.bound()))
        candidates.push_back({rounded_down(parts.bound(), space.decisions), ways});
    } while (next(ways, space.decisions));
    std::ranges::stable_sort(candidates, {}, &Candidate::bound);
    result.plans = static_cast<int64_t>(candidates.size());
  } else {
    TSR_ASSIGN_OR_RETURN(const BestDecision computed, best_decision(bounds.kernels, budget_bytes));
    TSR_ASSIGN_OR_RETURN(const BestDecision sent, best_decision(bounds.collectives, budget_bytes));
    rest = rounded_down(std::max(computed.bound_s, sent.bound_s), space.decisions);
    for (const BestDecision* best : {&priced, &computed, &sent})
      candidates.push_back({rest, best->decision.ways});
    result.plans = -1;
  }
  result.seconds = INFINITY;
  result.bound_s = rest;
  Status failure;
  for (const Candidate& candidate : candidates) {
    if (candidate.bound >= result.seconds) {
      result.bound_s = std::min(result.bound_s, candidate.bound);
      break;
    }
    const Plan plan = plan_of(space, graph, candidate.ways);
    const auto seconds = simulated_seconds(graph, plan, cluster, catalog);
    ++result.simulated;
    if (!seconds.ok()) {
      failure = seconds.status();
      continue;
    }
    if (*seconds < result.seconds) result.seconds = *seconds, result.plan = plan;
  }
  if (std::isinf(result.seconds)) return failure;
  result.bound_s = std::min(result.bound_s, result.seconds);
  result.gap = (result.seconds - result.bound_s) / result.seconds;
  result.plan.estimate.step_time_s = result.seconds;
  result.plan.estimate.gap = result.gap;
  return result;
}

}  // namespace tessera
