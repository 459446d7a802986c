#include "parallel/lowering/pipeline_layout.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_line.h"

namespace tessera {

namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

int32_t stage_of(const EntryLayout& layout, NodeId node) { return layout.nodes_plan(node).stage; }

class TaskOrder {
 public:
  explicit TaskOrder(EntryLayout& layout)
      : layout_(layout),
        graph_(layout.graph),
        here_(layout.places.size()),
        home_(graph_.tensors().size(), -1) {
    layout_.tasks.assign(layout_.places.size(), {});
  }

  Status run() {
    group_nodes();
    PipelineShape shape;
    shape.kind = layout_.plan->schedule;
    shape.devices = static_cast<int32_t>(layout_.places.size());
    shape.virtual_stages = static_cast<int32_t>(layout_.plan->stages.size()) / shape.devices;
    shape.micro_batches = layout_.micro_batches;
    TSR_RETURN_IF_ERROR(check_stages(shape));
    TSR_ASSIGN_OR_RETURN(const PipelineSchedule schedule, make_pipeline_schedule(shape));
    TSR_ASSIGN_OR_RETURN(const std::vector<PipelineAction> line, pipeline_line(schedule));
    for (const PipelineAction& action : line) TSR_RETURN_IF_ERROR(act(action));
    const int32_t last = layout_.micro_batches - 1;
    for (const NodeId id : updates_) TSR_RETURN_IF_ERROR(run_nodes(std::span(&id, 1), last));
    return send_updates(last);
  }

 private:
  struct StageNodes {
    std::vector<NodeId> forward, backward_input, backward_weight, backward;
  };

  void group_nodes() {
    stages_.resize(layout_.plan->stages.size());
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const NodeId id{static_cast<uint32_t>(n)};
      const Phase phase = graph_.node(id).phase;
      if (phase == Phase::kUpdate) {
        updates_.push_back(id);
        continue;
      }
      StageNodes& stage = stages_[static_cast<size_t>(stage_of(layout_, id))];
      if (phase == Phase::kForward) {
        stage.forward.push_back(id);
      } else {
        stage.backward.push_back(id);
        (phase == Phase::kBackwardInput ? stage.backward_input : stage.backward_weight).push_back(id);
      }
    }
  }

  Status check_stages(const PipelineShape& shape) const {
    const std::vector<Stage>& stages = layout_.plan->stages;
    if (static_cast<size_t>(shape.stages()) != stages.size())
      return invalid(format("{} stages on {} sets of devices; every set takes the same number", stages.size(),
                            shape.devices));
    for (int32_t s = 0; s < shape.stages(); ++s) {
      const int32_t wanted = shape.device_of(s);
      if (layout_.place_of_stage[static_cast<size_t>(s)] != wanted)
        return invalid(
            format("stage {} lies on the devices of stage {}, where the schedule has it on those of "
                   "stage {}",
                   s, layout_.place_of_stage[static_cast<size_t>(s)], wanted));
    }
    return {};
  }

  Status act(const PipelineAction& action) {
    const StageNodes& stage = stages_[static_cast<size_t>(action.stage)];
    switch (action.work) {
      case PipelineWork::kForward: return run_nodes(stage.forward, action.micro_batch);
      case PipelineWork::kBackwardInput: return run_nodes(stage.backward_input, action.micro_batch);
      case PipelineWork::kBackwardWeight: return run_nodes(stage.backward_weight, action.micro_batch);
      case PipelineWork::kBackward: return run_nodes(stage.backward, action.micro_batch);
    }
    return {};
  }

  // The tasks of one stage.
  Status run_nodes(std::span<const NodeId> nodes, int32_t micro_batch) {
    for (const NodeId id : nodes) {
      const Node& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (reads_input(node, i)) TSR_RETURN_IF_ERROR(bring(id, node.inputs[i], micro_batch));
    }
    for (const NodeId id : nodes) {
      const int32_t place = layout_.place[index(id)];
      layout_.tasks[static_cast<size_t>(place)].push_back({id, micro_batch});
      for (const TensorId output : graph_.node(id).outputs) home_[index(output)] = place;
    }
    return {};
  }

  // Sends `tensor` to the place of `reader`, unless it is there.
  Status bring(NodeId reader, TensorId tensor, int32_t micro_batch) {
    const Tensor& it = graph_.tensor(tensor);
    const int32_t to = layout_.place[index(reader)];
    if (it.kind != TensorKind::kActivation) {
      const auto& lies = layout_.lies_on[index(tensor)];
      if (std::ranges::find(lies, to) != lies.end()) return {};
      return invalid(format("'{}' is read by {} in stage {} and not placed there", it.name,
                            describe(graph_, reader), stage_of(layout_, reader)));
    }
    const int32_t from = layout_.place[index(it.producer)];
    if (from == to) return {};
    const Phase made_in = graph_.node(it.producer).phase;
    const bool total = graph_.node(reader).phase == Phase::kUpdate && made_in != Phase::kUpdate;
    return send(tensor, from, to, micro_batch, total, reader);
  }

  Status send(TensorId tensor, int32_t from, int32_t to, int32_t micro_batch, bool total, NodeId reader) {
    if (home_[index(tensor)] < 0)
      return invalid(
          format("'{}' is read by {} in stage {} before it is made; put the reader in a later stage",
                 graph_.tensor(tensor).name, describe(graph_, reader), stage_of(layout_, reader)));
    if (!here_[static_cast<size_t>(to)].insert({tensor, micro_batch, total}).second) return {};
    Task task{reader, micro_batch, TaskKind::kSend, tensor, to, total};
    layout_.tasks[static_cast<size_t>(from)].push_back(task);
    task.kind = TaskKind::kReceive;
    task.peer = from;
    layout_.tasks[static_cast<size_t>(to)].push_back(task);
    return {};
  }

  // Sends new values of parameters and state to all their holders.
  Status send_updates(int32_t micro_batch) {
    for (const Update& update : graph_.updates()) {
      const NodeId producer = graph_.tensor(update.value).producer;
      if (producer == kNoNode) continue;
      for (const int32_t place : layout_.lies_on[index(update.target)])
        if (place != layout_.place[index(producer)])
          TSR_RETURN_IF_ERROR(
              send(update.value, layout_.place[index(producer)], place, micro_batch, false, producer));
    }
    return {};
  }

  EntryLayout& layout_;
  const Graph& graph_;
  std::vector<StageNodes> stages_;
  std::vector<NodeId> updates_;
  std::vector<std::set<std::tuple<TensorId, int32_t, bool>>> here_;  // by place: received tensors
  std::vector<int32_t> home_;                                        // by tensor: its producer's place, for some micro-batch
};

// By tensor: the plan's placements, else every reader's place.
std::vector<std::vector<int32_t>> find_placements(const EntryLayout& layout) {
  const Graph& graph = layout.graph;
  std::vector<std::vector<int32_t>> lies(graph.tensors().size());
  const auto add = [&](TensorId tensor, int32_t place) {
    std::vector<int32_t>& all = lies[index(tensor)];
    if (std::ranges::find(all, place) == all.end()) all.push_back(place);
  };
  for (const StoredTensor& stored : layout.plan->stored)
    if (layout.is_persistent(stored.tensor))
      for (const Placement& placement : stored.placements)
        add(stored.tensor, layout.place_of_stage[static_cast<size_t>(placement.mesh)]);
  std::vector<bool> planned(lies.size());
  for (size_t t = 0; t < lies.size(); ++t) planned[t] = !lies[t].empty();
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (layout.is_persistent(node.inputs[i]) && !planned[index(node.inputs[i])] && reads_input(node, i))
        add(node.inputs[i], layout.place[n]);
    for (const TensorId output : node.outputs) add(output, layout.place[n]);
  }
  for (auto& all : lies)
    if (all.empty()) all.push_back(0);
  return lies;
}

}  // namespace

Status find_places(EntryLayout& layout) {
  const Plan& plan = *layout.plan;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const DeviceMesh& mesh = plan.stages[s].mesh;
    const auto at = std::ranges::find(layout.places, mesh);
    layout.place_of_stage.push_back(static_cast<int32_t>(at - layout.places.begin()));
    if (at != layout.places.end()) continue;
    if (mesh.axes != plan.stages[0].mesh.axes)
      return invalid(format("stage {} has the mesh '{}', stage 0 '{}'; all have equal axes", s, to_text(mesh),
                            to_text(plan.stages[0].mesh)));
    for (const DeviceMesh& other : layout.places)
      for (const int32_t device : mesh.devices)
        if (std::ranges::find(other.devices, device) != other.devices.end())
          return invalid(
              format("stage {} shares device {} with another stage, but not all of its devices in "
                     "the same order",
                     s, device));
    layout.places.push_back(mesh);
  }
  if (plan.stages.size() > 1 && plan.schedule == ScheduleKind::kNone)
    return invalid(format("{} pipeline stages without a schedule; gpipe or 1f1b is one", plan.stages.size()));
  for (size_t n = 0; n < layout.graph.nodes().size(); ++n) {
    const int32_t stage = stage_of(layout, NodeId{static_cast<uint32_t>(n)});
    if (stage < 0 || static_cast<size_t>(stage) >= plan.stages.size())
      return invalid(format("a node in stage {} of {}", stage, plan.stages.size()));
    layout.place.push_back(layout.place_of_stage[static_cast<size_t>(stage)]);
  }
  return {};
}

Status defer_tied_sums(EntryLayout& layout) {
  if (layout.plan->stages.size() == 1) return {};
  Graph& graph = layout.graph;
  std::vector<bool> gradient(graph.tensors().size(), false), mixed(graph.nodes().size(), false);
  for (const Gradient& it : graph.gradients()) gradient[index(it.gradient)] = true;
  const auto is_sum = [&](size_t n) -> Result<bool> {
    const Node& node = graph.nodes()[n];
    if (node.inputs.size() < 2 || node.phase == Phase::kForward || node.phase == Phase::kUpdate) return false;
    TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(graph, node));
    return std::ranges::any_of(rule.linear,
                               [&](const auto& set) { return set.size() == node.inputs.size(); });
  };
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    if (graph.nodes()[n].outputs.size() != 1 || !gradient[index(graph.nodes()[n].outputs[0])]) continue;
    TSR_ASSIGN_OR_RETURN(const bool sum, is_sum(n));
    if (!sum) continue;
    mixed[n] = true;  // decided below
    for (const TensorId input : graph.nodes()[n].inputs) gradient[index(input)] = true;
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (!mixed[n]) continue;
    mixed[n] = false;
    for (const TensorId input : graph.nodes()[n].inputs) {
      const NodeId producer = graph.tensor(input).producer;
      mixed[n] = mixed[n] || producer == kNoNode || mixed[index(producer)] ||
                 stage_of(layout, producer) != stage_of(layout, NodeId{static_cast<uint32_t>(n)});
    }
    if (mixed[n]) graph.set_phase_of(NodeId{static_cast<uint32_t>(n)}, Phase::kUpdate);
  }
  return {};
}

Status order_tasks(EntryLayout& layout) {
  layout.lies_on = find_placements(layout);
  if (layout.plan->stages.size() == 1) {
    layout.tasks = {schedule(layout.graph, layout.micro_batches, layout.plan->prefetch)};
    return {};
  }
  return TaskOrder(layout).run();
}

}  // namespace tessera
