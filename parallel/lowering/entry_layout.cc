// Binds symbols, drops mesh axes of size 1, shards every node as its plan says (shard_node), and checks zig-zag sequences.
// Contradictory plans are refused.
#include "parallel/lowering/entry_layout.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/lowering/pipeline_layout.h"
#include "parallel/sharding/parameter_copies.h"
#include "parallel/sharding/zigzag.h"

namespace tessera {

TensorType EntryLayout::whole_type(TensorId id) const {
  TensorType type = graph.type(id);
  const int dim = batch_dim[index(id)];
  if (dim >= 0) type.shape.set(dim, type.shape[dim] * micro_batches);
  return type;
}

bool EntryLayout::lies_at(TensorId id, int32_t where) const {
  return std::ranges::find(lies_on[index(id)], where) != lies_on[index(id)].end();
}

const NodePlan& EntryLayout::nodes_plan(NodeId id) const {
  static const NodePlan kWhole;
  return plan->nodes.empty() ? kWhole : plan->nodes[index(id)];
}

bool EntryLayout::is_zigzag_axis(AxisId axis) const {
  return std::ranges::find(plan->zigzag, axis) != plan->zigzag.end();
}

bool EntryLayout::is_zigzag(TensorId id, size_t dim, const DimSharding& split) const {
  return !split.axes.empty() && is_zigzag_axis(split.axes[0]) && sequences.dims[index(id)][dim];
}

bool EntryLayout::is_zigzag(NodeId id, size_t factor, const DimSharding& split) const {
  return !split.axes.empty() && is_zigzag_axis(split.axes[0]) && sequences.factors[index(id)][factor];
}

void EntryLayout::zigzag_view(const DimSharding& split, FactorView& view) const {
  const int32_t parts = mesh.axis_size(split.axes[0]);
  const Range local{view.begin[0], view.end[0]};
  for (int32_t part = 0; part < parts; ++part) {
    const Range shard = split_range({0, view.global_extent}, split.unit, parts, part);
    if (local.begin < shard.begin || local.begin >= shard.end) continue;
    const std::vector<Range> ranges = zigzag_ranges(view.global_extent, split.unit, parts, part, local);
    view.range_count = static_cast<int32_t>(ranges.size());
    for (size_t r = 0; r < ranges.size(); ++r) {
      view.begin[r] = ranges[r].begin;
      view.end[r] = ranges[r].end;
    }
    return;
  }
}

namespace {

constexpr std::string_view kBatch = "B";

Status check_mesh(const DeviceMesh& mesh) {
  constexpr int64_t kMostDevices = 1 << 16;
  int64_t size = 1;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.size < 1 || size > kMostDevices)
      return Status(StatusCode::kInvalidArgument, format("mesh axis '{}' has size {}", axis.name, axis.size));
    size *= axis.size;
  }
  std::vector<int32_t> devices = mesh.devices;
  std::ranges::sort(devices);
  const bool distinct = std::ranges::adjacent_find(devices) == devices.end();
  if (static_cast<int64_t>(devices.size()) != size || !distinct || devices.front() < 0 ||
      devices.back() >= kMostDevices)
    return Status(StatusCode::kInvalidArgument,
                  format("the mesh '{}' wants {} distinct devices, {} are listed", to_text(mesh), size,
                         devices.size()));
  return {};
}

// Checks for unsupported parts; a plan is refused rather than partly followed.
Status check_plan(const EntrySpec& entry) {
  const Plan& plan = *entry.plan;
  const auto refuse = [&](std::string what) {
    return Status(StatusCode::kUnsupported, format("plan of '{}': {}", entry.name, what));
  };
  if (plan.stages.empty()) return refuse("it has no stage; at least 1 is wanted");
  for (const Stage& stage : plan.stages)
    TSR_RETURN_IF_ERROR(check_mesh(stage.mesh).with_context(format("plan of '{}'", entry.name)));
  if (plan.micro_batches < 1)
    return refuse(format("{} micro-batches; at least 1 is wanted", plan.micro_batches));
  if (!plan.nodes.empty() && plan.nodes.size() != entry.graph->nodes().size())
    return refuse(
        format("{} nodes planned, the graph has {}", plan.nodes.size(), entry.graph->nodes().size()));
  for (const NodePlan& node : plan.nodes) {
    if (node.chunks < 1 || (node.chunks > 1 && node.chunk_factor == 0))
      return refuse(format("a node in {} chunks of no factor", node.chunks));
    if (node.tier == Tier::kFile) return refuse("a node cannot run in the file tier; use host");
  }
  for (const StoredTensor& stored : plan.stored) {
    if (index(stored.tensor) >= entry.graph->tensors().size() || stored.placements.empty())
      return refuse("a stored tensor is not in the graph or has no placement");
    const Placement& owner = stored.placements[0];
    for (const Placement& it : stored.placements)
      if (it.mesh < 0 || static_cast<size_t>(it.mesh) >= plan.stages.size() || it.stored != owner.stored ||
          it.tier != owner.tier)
        return refuse(
            format("'{}' is not placed alike in all its stages", entry.graph->tensor(stored.tensor).name));
  }
  const auto is_activation = [&](TensorId id) {
    return index(id) < entry.graph->tensors().size() &&
           entry.graph->tensor(id).kind == TensorKind::kActivation;
  };
  if (!std::ranges::all_of(plan.recompute, is_activation))
    return refuse("what is computed again must be activations");
  if (!std::ranges::all_of(plan.offload, [&](const OffloadedTensor& it) { return is_activation(it.tensor); }))
    return refuse("what is offloaded between forward and backward must be activations");
  for (const TensorId id : plan.keep_gathered)
    if (index(id) >= entry.graph->tensors().size()) return refuse("a kept tensor is not in the graph");
  for (const AxisId axis : plan.zigzag)
    if (axis >= plan.stages[0].mesh.axes.size())
      return refuse(format("zig-zag axis {} is not in the mesh", axis));
  return {};
}

Result<Graph> bind_symbols(const EntrySpec& entry) {
  const Plan& plan = *entry.plan;
  std::vector<std::pair<std::string, int64_t>> values = plan.symbols;
  const bool has_batch =
      std::ranges::any_of(entry.graph->symbols(), [](const Symbol& s) { return s.name == kBatch; });
  if (has_batch) {
    if (plan.global_batch < 1 || plan.global_batch % plan.micro_batches != 0)
      return Status(StatusCode::kInvalidArgument,
                    format("plan of '{}': a batch of {} sequences does not cut into {} equal micro-batches",
                           entry.name, plan.global_batch, plan.micro_batches));
    std::erase_if(values, [](const auto& value) { return value.first == kBatch; });
    values.emplace_back(kBatch, plan.global_batch / plan.micro_batches);
  }
  return entry.graph->bind(values);
}

// Axes of size 1 split nothing; they are dropped, so that no collective is made for them.
void drop_unit_axes(std::vector<AxisId>& axes, const DeviceMesh& mesh) {
  std::erase_if(axes, [&](AxisId axis) { return axis < mesh.axes.size() && mesh.axis_size(axis) == 1; });
}

ShardingSpec without_unit_axes(ShardingSpec spec, const DeviceMesh& mesh) {
  for (DimSharding& dim : spec.dims) {
    drop_unit_axes(dim.axes, mesh);
    if (dim.axes.empty()) dim.unit = 1;
  }
  drop_unit_axes(spec.partial, mesh);
  return spec;
}

NodePlan without_unit_axes(NodePlan plan, const DeviceMesh& mesh) {
  for (auto& [name, axes] : plan.factor_axes) drop_unit_axes(axes, mesh);
  drop_unit_axes(plan.carried, mesh);
  return plan;
}

class LayoutMaker {
 public:
  LayoutMaker(const EntrySpec& entry, EntryLayout& layout) : symbolic_(*entry.graph), layout_(layout) {}

  Status make() {
    TSR_RETURN_IF_ERROR(find_places(layout_));
    TSR_RETURN_IF_ERROR(defer_tied_sums(layout_));
    if (layout_.micro_batches > 1) {
      TSR_ASSIGN_OR_RETURN(BatchCut split, cut_batch(symbolic_));
      for (const NodeId id : split.last) layout_.graph.set_phase_of(id, Phase::kUpdate);
      layout_.parts = std::move(split.parts);
    }
    find_batch();
    mark_tensors();
    TSR_RETURN_IF_ERROR(shard_nodes());
    TSR_RETURN_IF_ERROR(place_tensors());
    find_crossings();
    place_outputs();
    find_once();
    return order_tasks(layout_);
  }

 private:
  void find_batch() {
    for (size_t s = 0; s < symbolic_.symbols().size(); ++s)
      if (symbolic_.symbols()[s].name == kBatch) batch_extent_ = symbol_extent(static_cast<int32_t>(s));
    for (const Tensor& tensor : symbolic_.tensors()) {
      const auto dims = tensor.type.shape.dims();
      const auto at = batch_extent_ ? std::ranges::find(dims, *batch_extent_) : dims.end();
      layout_.batch_dim.push_back(at == dims.end() ? -1 : static_cast<int>(at - dims.begin()));
    }
  }

  void mark_tensors() {
    const size_t count = layout_.graph.tensors().size();
    layout_.recompute.assign(count, false);
    layout_.keep_gathered.assign(count, false);
    layout_.offload.assign(count, Tier::kDevice);
    layout_.tier.assign(count, Tier::kDevice);
    for (const TensorId id : layout_.plan->recompute) layout_.recompute[index(id)] = true;
    for (const TensorId id : layout_.plan->keep_gathered) layout_.keep_gathered[index(id)] = true;
    for (const OffloadedTensor& it : layout_.plan->offload) layout_.offload[index(it.tensor)] = it.tier;
    for (const StoredTensor& it : layout_.plan->stored)
      layout_.tier[index(it.tensor)] = it.placements[0].tier;
  }

  Status shard_nodes() {
    const size_t count = layout_.graph.nodes().size();
    for (size_t n = 0; n < count; ++n) {
      cancellation_point();
      const NodeId id{static_cast<uint32_t>(n)};
      const NodePlan plan =
          layout_.plan->nodes.empty() ? NodePlan{} : without_unit_axes(layout_.plan->nodes[n], layout_.mesh);
      TSR_ASSIGN_OR_RETURN(NodeSharding sharding, shard_node(layout_.graph, id, plan, layout_.mesh));
      std::vector<bool> batch(sharding.factors.size(), false);
      if (batch_extent_) {
        TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(symbolic_, symbolic_.node(id)));
        for (size_t f = 0; f < rule.factors.size() && f < batch.size(); ++f)
          batch[f] = rule.factors[f].extent == *batch_extent_;
      }
      layout_.batch_factors.push_back(std::move(batch));
      layout_.nodes.push_back(std::move(sharding));
    }
    if (layout_.plan->zigzag.empty()) return {};
    std::vector<ShardingRule> rules;
    for (const NodeSharding& sharding : layout_.nodes) rules.push_back(sharding.rule);
    layout_.sequences = find_sequence_dims(symbolic_, layout_.graph, rules);
    return check_zigzag();
  }

  // A sequence split over another axis first would be
  // ordered differently than one on the zigzag axis alone.
  Status check_zigzag() const {
    for (size_t n = 0; n < layout_.nodes.size(); ++n)
      for (size_t f = 0; f < layout_.nodes[n].factors.size(); ++f) {
        const std::vector<AxisId>& axes = layout_.nodes[n].factors[f].axes;
        for (size_t a = 1; a < axes.size(); ++a)
          if (layout_.sequences.factors[n][f] && layout_.is_zigzag_axis(axes[a]))
            return Status(
                StatusCode::kUnsupported,
                format("{}: a sequence lies on the zig-zag axis '{}' after axis '{}'; the zig-zag axis "
                       "comes first",
                       describe(layout_.graph, NodeId{static_cast<uint32_t>(n)}),
                       layout_.mesh.axes[axes[a]].name, layout_.mesh.axes[axes[0]].name));
      }
    return {};
  }

  Status place_tensors() {
    for (size_t t = 0; t < layout_.graph.tensors().size(); ++t) {
      const Tensor& tensor = layout_.graph.tensors()[t];
      const TensorId id{static_cast<uint32_t>(t)};
      ShardingSpec spec = ShardingSpec::replicated(tensor.type.shape.rank());
      const StoredTensor* stored = layout_.plan->find_stored(id);
      if (stored != nullptr) {
        spec = without_unit_axes(stored->placements[0].stored, layout_.mesh);
        TSR_RETURN_IF_ERROR(validate(spec, tensor.type.shape, layout_.mesh)
                                .with_context(format("placement of '{}'", tensor.name)));
        TSR_RETURN_IF_ERROR(check_not_empty(tensor, spec));
      }
      layout_.accumulate.push_back(spec);
      if (tensor.kind == TensorKind::kActivation) {
        const ShardingSpec& produced = layout_.nodes[index(tensor.producer)].outputs[tensor.output_index];
        if (stored == nullptr) layout_.accumulate.back() = produced;
        spec = produced;
      } else if (!spec.partial.empty()) {
        return Status(StatusCode::kInvalidArgument,
                      format("placement of '{}': only a gradient may be stored partial", tensor.name));
      }
      if (tensor.kind == TensorKind::kState && layout_.batch_dim[t] >= 0 && layout_.micro_batches > 1)
        return Status(StatusCode::kUnsupported,
                      format("state '{}' has a batch dim, which {} micro-batches would cut", tensor.name,
                             layout_.micro_batches));
      layout_.spec.push_back(std::move(spec));
    }
    return {};
  }

  Status check_not_empty(const Tensor& tensor, const ShardingSpec& spec) const {
    for (size_t d = 0; d < spec.dims.size(); ++d) {
      int64_t parts = 1;
      for (const AxisId axis : spec.dims[d].axes) parts *= layout_.mesh.axis_size(axis);
      const int64_t extent = tensor.type.shape[static_cast<int>(d)], units = extent / spec.dims[d].unit;
      if (parts > 1 && units < parts && !has_owner(spec.dims[d], extent))
        return Status(StatusCode::kInvalidArgument,
                      format("'{}': dim {} has {} units to split {} ways; at most {}", tensor.name, d, units,
                             parts, units));
    }
    return {};
  }

  void find_crossings() {
    const Graph& graph = layout_.graph;
    layout_.accumulated.assign(graph.tensors().size(), false);
    const auto mark = [&](TensorId id) {
      const NodeId producer = graph.tensor(id).producer;
      if (producer != kNoNode && graph.node(producer).phase != Phase::kUpdate)
        layout_.accumulated[index(id)] = true;
    };
    for (const Node& node : graph.nodes())
      if (node.phase == Phase::kUpdate)
        for (size_t i = 0; i < node.inputs.size(); ++i)
          if (reads_input(node, i)) mark(node.inputs[i]);
    for (const Update& update : graph.updates()) mark(update.value);
    for (const NamedTensor& output : graph.outputs())
      if (layout_.batch_dim[index(output.tensor)] < 0) mark(output.tensor);
  }

  void place_outputs() {
    for (const NamedTensor& output : layout_.graph.outputs()) {
      const size_t t = index(output.tensor);
      const bool summed = layout_.accumulated[t] && layout_.micro_batches > 1;
      ShardingSpec spec = summed ? layout_.accumulate[t] : layout_.spec[t];
      spec.partial.clear();
      spec.reduce = ReduceKind::kSum;
      layout_.outputs.push_back(std::move(spec));
    }
  }

  void find_once() {
    const Graph& graph = layout_.graph;
    layout_.once.assign(graph.nodes().size(), false);
    for (size_t t = 0; t < graph.tensors().size(); ++t)
      layout_.canonical_copy.push_back(TensorId{static_cast<uint32_t>(t)});
    std::map<TensorId, NodeId> copies;
    for (const ParameterCopy& it : parameter_copies(graph))
      if (it.narrows && !layout_.recompute[index(it.copy)] && !layout_.accumulated[index(it.copy)] &&
          layout_.offload[index(it.copy)] == Tier::kDevice &&
          std::ranges::none_of(graph.outputs(),
                               [&](const NamedTensor& out) { return out.tensor == it.copy; }))
        copies.emplace(it.copy, it.node);
    if (copies.empty()) return;
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto copy = copies.find(node.inputs[i]);
        if (copy == copies.end() || !reads_input(node, i)) continue;
        const TensorId id = node.inputs[i];
        if (node.phase != Phase::kForward || !same_layout(layout_.spec[index(id)], layout_.nodes[n].inputs[i],
                                                          graph.type(id).shape, layout_.mesh))
          layout_.once[index(copy->second)] = true;
      }
    }
    find_twins(copies);
    // Nodes that measure a copy are made with it.
    for (const auto& [copy, id] : copies)
      if (layout_.once[index(id)])
        for (const TensorId measured : std::span(graph.node(id).inputs).subspan(1))
          layout_.once[index(graph.tensor(measured).producer)] = true;
  }

  // Copies that are made anyway replace equal ones.
  void find_twins(const std::map<TensorId, NodeId>& copies) {
    const auto key = [&](TensorId copy, NodeId id) {
      const Node& node = layout_.graph.node(id);
      std::string made(node.op->name);
      for (const Attr& attr : node.attrs) made += format(" {}={}", attr.name, to_text(attr.value));
      return std::tuple(node.inputs[0], layout_.place[index(id)], made,
                        to_text(layout_.spec[index(copy)], layout_.mesh));
    };
    std::map<std::tuple<TensorId, int32_t, std::string, std::string>, TensorId> first;
    for (const auto& [copy, id] : copies)
      if (layout_.once[index(id)]) first.try_emplace(key(copy, id), copy);
    for (const auto& [copy, id] : copies) {
      const auto at = first.find(key(copy, id));
      if (at == first.end()) continue;
      layout_.canonical_copy[index(copy)] = at->second;
      layout_.once[index(id)] = true;
    }
  }

  const Graph& symbolic_;
  EntryLayout& layout_;
  std::optional<int64_t> batch_extent_;
};

}  // namespace

Result<EntryLayout> make_layout(const EntrySpec& given) {
  TSR_CHECK(given.graph != nullptr && given.plan != nullptr, "an entry point wants a graph and a plan");
  TSR_RETURN_IF_ERROR(check_plan(given));
  EntryLayout layout;
  EntrySpec entry = given;
  TSR_ASSIGN_OR_RETURN(std::optional<ExpandedPhases> expanded, expand_phases(*given.graph, *given.plan));
  if (expanded) {
    layout.expanded = std::make_shared<const ExpandedPhases>(std::move(*expanded));
    entry.graph = &layout.expanded->graph;
    entry.plan = &layout.expanded->plan;
  }
  TSR_ASSIGN_OR_RETURN(layout.graph, bind_symbols(entry));
  layout.name = entry.name;
  layout.plan = entry.plan;
  layout.mesh = entry.plan->stages[0].mesh;
  layout.resharder = std::make_shared<Resharder>(layout.mesh);
  layout.micro_batches = entry.plan->micro_batches;
  if (Status status = LayoutMaker(entry, layout).make(); !status.ok())
    return status.with_context(format("entry '{}'", entry.name));
  return layout;
}

}  // namespace tessera
