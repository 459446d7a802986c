#include "parallel/strategy/stage_cut.h"

#include <algorithm>
#include <optional>
#include <set>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

namespace {

// Ends (exclusive) of `parts` runs of `costs`: the smallest maximum, then the least sum of squares.
std::vector<size_t> cut_evenly(const std::vector<double>& costs, size_t parts) {
  const size_t n = costs.size();
  std::vector<double> before(n + 1, 0);
  for (size_t i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  struct Best {
    double most = 0, squares = 0;
    size_t from = 0;
    bool exists = false;
  };
  std::vector<std::vector<Best>> best(parts + 1, std::vector<Best>(n + 1));
  best[0][0].exists = true;
  for (size_t k = 1; k <= parts; ++k)
    for (size_t end = k; end <= n; ++end)
      for (size_t from = k - 1; from < end; ++from) {
        const Best& head = best[k - 1][from];
        if (!head.exists) continue;
        const double last = before[end] - before[from];
        const Best it{std::max(head.most, last), head.squares + last * last, from, true};
        Best& known = best[k][end];
        if (!known.exists || it.most < known.most || (it.most == known.most && it.squares < known.squares))
          known = it;
      }
  std::vector<size_t> ends(parts);
  for (size_t k = parts, end = n; k > 0; end = best[k--][end].from) ends[k - 1] = end;
  return ends;
}

class Cutter {
 public:
  Cutter(const Graph& graph, Plan plan, const StageCut& cut)
      : graph_(graph),
        plan_(std::move(plan)),
        cut_(cut),
        shape_{cut.schedule, cut.devices, cut.virtual_stages, 1} {}

  Result<Plan> run() {
    TSR_RETURN_IF_ERROR(make_stages());
    find_units();
    TSR_RETURN_IF_ERROR(assign_forward());
    find_readers();
    assign_backward();
    assign_updates();
    for (size_t n = 0; n < stage_.size(); ++n) plan_.nodes[n].stage = stage_[n];
    place();
    return std::move(plan_);
  }

 private:
  Status make_stages() {
    if (plan_.stages.size() != 1 || plan_.nodes.size() != graph_.nodes().size())
      return Status(StatusCode::kInvalidArgument,
                    format("a plan of {} stages cannot be cut again; 1 is wanted", plan_.stages.size()));
    const DeviceMesh inner = plan_.stages[0].mesh;
    plan_.stages.clear();
    for (int32_t s = 0; s < shape_.stages(); ++s) {
      DeviceMesh mesh = inner;
      for (int32_t& device : mesh.devices) device += shape_.device_of(s) * inner.size();
      plan_.stages.push_back({std::move(mesh)});
    }
    plan_.schedule = cut_.schedule;
    stage_.assign(graph_.nodes().size(), -1);
    return {};
  }

  // --- forward nodes ---

  // Runs of forward nodes that stay together; units
  // follow graph order, so no node precedes its inputs.
  void find_units() {
    const auto nodes = graph_.nodes();
    std::map<std::string, size_t> known;
    bool in_blocks = false;
    for (const Node& node : nodes)
      in_blocks = in_blocks || (node.phase == Phase::kForward && !block_scope(node.scope).empty());
    unit_.assign(nodes.size(), 0);
    size_t now = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].phase != Phase::kForward) continue;
      const std::string_view block = block_scope(nodes[n].scope);
      if (!in_blocks) {
        now = unit_costs_.size();
      } else if (!block.empty()) {
        now = std::max(now, known.emplace(block, known.size()).first->second);
      }
      unit_[n] = now;
      if (unit_costs_.size() <= now) unit_costs_.resize(now + 1, 0);
      unit_costs_[now] += cost_of(NodeId{static_cast<uint32_t>(n)});
    }
  }

  double cost_of(NodeId id) const {
    const Node& node = graph_.node(id);
    const auto sharding = shard_node(graph_, id, {}, plan_.stages[0].mesh);
    if (!sharding.ok() || node.op->cost == nullptr) return 0;
    std::vector<TensorType> inputs, outputs;
    for (const TensorId input : node.inputs) inputs.push_back(graph_.type(input));
    for (const TensorId output : node.outputs) outputs.push_back(graph_.type(output));
    const std::vector<int32_t> origin(plan_.stages[0].mesh.axes.size(), 0);
    const std::vector<FactorView> views = factor_views(*sharding, plan_.stages[0].mesh, origin);
    constexpr double kFlopsAByte = 4;  // approximate compute per moved byte
    const OpCost cost = node.op->cost({node.attrs, inputs, outputs, views});
    return cost.flops + kFlopsAByte * (cost.bytes_read + cost.bytes_written);
  }

  Status assign_forward() {
    const auto stages = static_cast<size_t>(shape_.stages());
    std::vector<int32_t> stage_of_unit(unit_costs_.size(), 0);
    if (!cut_.blocks.empty()) {
      TSR_ASSIGN_OR_RETURN(stage_of_unit, units_as_told());
    } else if (!cut_.owners.empty()) {
      stage_of_unit = units_like_owners();
    } else if (unit_costs_.size() < stages) {
      // Fewer stages per device if those devices suffice with one; else fewer devices.
      const size_t blocks = std::max<size_t>(1, unit_costs_.size()),
                   devices = static_cast<size_t>(cut_.devices);
      const size_t most = std::max<size_t>(1, blocks / devices);
      const size_t kept =
          cut_.schedule == ScheduleKind::kZbV ? 2 : std::min(most, static_cast<size_t>(cut_.virtual_stages));
      return Status(
          StatusCode::kInvalidArgument,
          format("pp={} with {} stages a device wants {} blocks, the model has {}; the nearest that "
                 "fits is pp={} with {}",
                 cut_.devices, cut_.virtual_stages, stages, unit_costs_.size(),
                 std::min(devices, blocks / kept), kept));
    } else {
      const std::vector<size_t> ends = cut_evenly(unit_costs_, stages);
      for (size_t unit = 0, s = 0; unit < unit_costs_.size(); ++unit) {
        while (unit >= ends[s]) ++s;
        stage_of_unit[unit] = static_cast<int32_t>(s);
      }
    }
    for (size_t n = 0; n < stage_.size(); ++n)
      if (graph_.nodes()[n].phase == Phase::kForward) stage_[n] = stage_of_unit[unit_[n]];
    return {};
  }

  Result<std::vector<int32_t>> units_as_told() const {
    std::vector<int32_t> result;
    for (size_t s = 0; s < cut_.blocks.size(); ++s)
      if (cut_.blocks[s] > 0)
        result.insert(result.end(), static_cast<size_t>(cut_.blocks[s]), static_cast<int32_t>(s));
    if (cut_.blocks.size() == static_cast<size_t>(shape_.stages()) && result.size() == unit_costs_.size())
      return result;
    return Status(StatusCode::kInvalidArgument,
                  format("{} stages of {} blocks, and {} stages of {} are wanted", cut_.blocks.size(),
                         result.size(), shape_.stages(), unit_costs_.size()));
  }

  std::vector<int32_t> units_like_owners() const {
    std::vector<int32_t> result(unit_costs_.size(), -1);
    for (size_t n = 0; n < stage_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kForward) continue;
      for (const TensorId input : node.inputs)
        if (const auto at = cut_.owners.find(graph_.tensor(input).name); at != cut_.owners.end())
          result[unit_[n]] = std::max(result[unit_[n]], std::min(at->second, shape_.stages() - 1));
    }
    for (size_t unit = 0; unit < result.size(); ++unit)
      result[unit] = std::max(result[unit], unit == 0 ? 0 : result[unit - 1]);
    return result;
  }

  // --- the rest ---

  void find_readers() {
    reading_.resize(graph_.tensors().size());
    for (size_t n = 0; n < stage_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kForward) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (reads_input(node, i)) reading_[index(node.inputs[i])].insert(stage_[n]);
    }
    parameter_of_.assign(graph_.tensors().size(), kNoTensor);
    for (const Gradient& gradient : graph_.gradients())
      parameter_of_[index(gradient.gradient)] = gradient.parameter;
  }

  int32_t owner_of(TensorId parameter) const {
    const std::set<int32_t>& stages = reading_[index(parameter)];
    if (!stages.empty()) return *stages.begin();
    const auto known = cut_.owners.find(graph_.tensor(parameter).name);
    return known == cut_.owners.end() ? 0 : known->second;
  }

  int32_t stage_of(TensorId tensor) const {
    const NodeId producer = graph_.tensor(tensor).producer;
    return producer == kNoNode ? -1 : stage_[index(producer)];
  }

  bool is_sum(const Node& node) const {
    const auto rule = rule_of(graph_, node);
    return node.inputs.size() > 1 && rule.ok() && std::ranges::any_of(rule->linear, [&](const auto& set) {
             return set.size() == node.inputs.size();
           });
  }

  void assign_backward() {
    for (size_t n = 0; n < stage_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase == Phase::kForward || node.phase == Phase::kUpdate) continue;
      const TensorId parameter = parameter_of_[index(node.outputs[0])];
      int32_t least = -1;
      for (const TensorId input : node.inputs)
        if (const int32_t from = stage_of(input); from >= 0) least = least < 0 ? from : std::min(least, from);
      if (node.forward != kNoNode) {
        // Addends of one gradient from later stages are added there, and sent once.
        const int32_t own = stage_[index(node.forward)];
        stage_[n] = is_sum(node) ? std::max(own, least) : own;
        continue;
      }
      stage_[n] = parameter != kNoTensor ? owner_of(parameter) : std::max(least, 0);
    }
  }

  void assign_updates() {
    for (size_t n = 0; n < stage_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kUpdate) continue;
      for (const TensorId input : node.inputs) {
        const TensorId parameter =
            graph_.tensor(input).kind == TensorKind::kParameter ? input : parameter_of_[index(input)];
        if (parameter == kNoTensor) continue;
        stage_[n] = owner_of(parameter);
        break;
      }
      if (stage_[n] >= 0) continue;
      // Tensors before scalars, such as gradient scales, which come from another stage.
      for (const bool scalars : {true, false})
        for (const TensorId input : node.inputs)
          if (const int32_t from = stage_of(input);
              from >= 0 && scalars == (graph_.type(input).shape.rank() == 0))
            stage_[n] = from;
    }
    // Nodes that read only inputs (a learning-rate schedule) run at their first reader's stage.
    for (size_t n = stage_.size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      for (const TensorId input : node.inputs) {
        const NodeId producer = graph_.tensor(input).producer;
        if (producer == kNoNode || graph_.node(producer).phase != Phase::kUpdate || stage_[n] < 0) continue;
        int32_t& stage = unset_[producer];
        if (stage_[index(producer)] < 0) stage = stage == 0 ? stage_[n] + 1 : std::min(stage, stage_[n] + 1);
      }
      const auto at = unset_.find(NodeId{static_cast<uint32_t>(n)});
      if (stage_[n] < 0) stage_[n] = at == unset_.end() || at->second == 0 ? 0 : at->second - 1;
    }
  }

  // --- stored tensors ---

  void place() {
    const std::vector<std::set<int32_t>> forward = reading_;
    for (size_t n = 0; n < stage_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (reads_input(node, i)) reading_[index(node.inputs[i])].insert(stage_[n]);
    }
    for (StoredTensor& stored : plan_.stored) {
      const Placement first = stored.placements[0];
      const Tensor& tensor = graph_.tensor(stored.tensor);
      std::set<int32_t> stages = reading_[index(stored.tensor)];
      int32_t owner = stages.empty() ? 0 : *stages.begin();
      if (tensor.kind == TensorKind::kActivation) {
        owner = stage_of(stored.tensor);
        stages.clear();
      }
      if (const auto held = cut_.holders.find(tensor.name); held != cut_.holders.end() &&
                                                            tensor.kind != TensorKind::kInput &&
                                                            forward[index(stored.tensor)].empty()) {
        owner = held->second.front();
        stages.insert(held->second.begin(), held->second.end());
      }
      stored.placements.clear();
      std::set<int32_t> devices;
      stages.insert(owner);
      const auto add = [&](int32_t stage) {
        if (!devices.insert(shape_.device_of(stage)).second) return;
        stored.placements.push_back(first);
        stored.placements.back().mesh = stage;
      };
      add(owner);
      for (const int32_t stage : stages) add(stage);
    }
  }

  const Graph& graph_;
  Plan plan_;
  const StageCut& cut_;
  PipelineShape shape_;
  std::vector<int32_t> stage_;              // by node; -1: unknown
  std::vector<size_t> unit_;                // by node
  std::vector<double> unit_costs_;          // by unit
  std::vector<std::set<int32_t>> reading_;  // by tensor: its readers' stages
  std::vector<TensorId> parameter_of_;      // by tensor, for gradients
  std::map<NodeId, int32_t> unset_;  // update nodes without a stage: the lowest of their readers' plus 1
};

}  // namespace

Result<Plan> cut_stages(const Graph& graph, Plan plan, const StageCut& cut) {
  if (cut.devices < 1 || cut.virtual_stages < 1 ||
      (cut.schedule == ScheduleKind::kZbV && cut.virtual_stages != 2))
    return Status(StatusCode::kInvalidArgument,
                  format("a pipeline of {} devices with {} stages each", cut.devices, cut.virtual_stages));
  return Cutter(graph, std::move(plan), cut).run();
}

std::map<std::string, int32_t> owners_of(const Graph& graph, const Plan& plan) {
  std::map<std::string, int32_t> owners;
  for (const StoredTensor& stored : plan.stored)
    if (graph.tensor(stored.tensor).kind == TensorKind::kParameter)
      owners[graph.tensor(stored.tensor).name] = stored.placements[0].mesh;
  return owners;
}

void add_holders(const Graph& graph, const Plan& plan, std::map<std::string, std::vector<int32_t>>& holders) {
  for (const StoredTensor& stored : plan.stored) {
    const Tensor& tensor = graph.tensor(stored.tensor);
    if (tensor.kind != TensorKind::kParameter && tensor.kind != TensorKind::kState) continue;
    std::vector<int32_t> stages;
    for (const Placement& placement : stored.placements) stages.push_back(placement.mesh);
    holders.emplace(tensor.name, std::move(stages));
  }
}

}  // namespace tessera
