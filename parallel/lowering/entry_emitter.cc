#include "parallel/lowering/entry_emitter.h"

#include <algorithm>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {

EntryEmitter::EmitPhase EntryEmitter::emit_phase_of(const Node& node) {
  if (node.phase == Phase::kForward) return EmitPhase::kForward;
  return node.phase == Phase::kUpdate ? EmitPhase::kUpdate : EmitPhase::kBackward;
}

Result<EntryPoint> EntryEmitter::emit() {
  const Graph& graph = layout_.graph;
  out_.name = layout_.name;
  TSR_RETURN_IF_ERROR(add_persistent_slots());
  add_output_slots();

  committed_.assign(graph.updates().size(), false);
  find_last_reads();
  enter_micro_batch(0);
  TSR_RETURN_IF_ERROR(emit_once());
  for (size_t task = 0; task < tasks_.size(); ++task) {
    cancellation_point();
    enter_micro_batch(tasks_[task].micro_batch);
    TSR_RETURN_IF_ERROR(emit_task(task));
  }
  enter_micro_batch(layout_.micro_batches - 1);
  TSR_RETURN_IF_ERROR(commit_updates(tasks_.size()));
  TSR_RETURN_IF_ERROR(copy_persistent_outputs());
  return std::move(out_);
}

void EntryEmitter::find_last_reads() {
  const Graph& graph = layout_.graph;
  std::vector<size_t> last(graph.tensors().size(), 0);
  // A node recomputed for backward reads its operands at that time.
  std::vector<size_t> seen(graph.nodes().size(), kNoTask);
  const auto read = [&](const auto& self, NodeId id, size_t task) -> void {
    if (seen[index(id)] == task) return;
    seen[index(id)] = task;
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!reads_input(node, i)) continue;
      last[index(viewed(graph, node.inputs[i]))] = task;
      if (layout_.recompute[index(node.inputs[i])]) self(self, graph.tensor(node.inputs[i]).producer, task);
    }
  };
  for (size_t task = 0; task < tasks_.size(); ++task)
    if (tasks_[task].kind == TaskKind::kNode) read(read, tasks_[task].node, task);
  last_read_at_.resize(tasks_.size());
  for (size_t u = 0; u < graph.updates().size(); ++u) {
    const Update& update = graph.updates()[u];
    last_read_.push_back(last[index(update.target)]);
    updates_with_[update.value].push_back(u);
    if (last_read_[u] < tasks_.size()) last_read_at_[last_read_[u]].push_back(u);
  }
}

std::span<const size_t> EntryEmitter::updates_with(TensorId value) const {
  const auto at = updates_with_.find(value);
  return at == updates_with_.end() ? std::span<const size_t>() : at->second;
}

void EntryEmitter::enter_micro_batch(int32_t micro_batch) {
  micro_batch_ = micro_batch;
  const auto [at_values, is_new] = live_.try_emplace(micro_batch, layout_.graph.tensors().size());
  if (!is_new) return;
  Values& values = at_values->second;
  for (const auto& [id, at] : persistent_) {
    const ShardingSpec& spec = layout_.spec[index(id)];
    const bool is_split = layout_.tensor(id).kind == TensorKind::kInput && layout_.batch_dim[index(id)] >= 0;
    const int64_t offset = is_split ? micro_batch * local_bytes(id, spec) : 0;
    values[index(id)].push_back({spec, {at.slot, at.offset + offset}, EmitPhase::kForward, true});
  }
  for (const auto& [id, copies] : lasting_)
    values[index(id)].insert(values[index(id)].end(), copies.begin(), copies.end());
}

void EntryEmitter::add_copy(TensorId id, Copy copy) {
  values()[index(id)].push_back(copy);
  for (const size_t update : updates_with(id)) ready_.insert(update);
  const Tensor& tensor = layout_.tensor(id);
  const bool lasts = tensor.producer == kNoNode
                         ? !(tensor.kind == TensorKind::kInput && layout_.batch_dim[index(id)] >= 0)
                         : layout_.once[index(tensor.producer)];
  if (!copy.kept || !lasts) return;
  lasting_[id].push_back(copy);
  for (auto& [micro_batch, values] : live_)
    if (micro_batch != micro_batch_) values[index(id)].push_back(copy);
}

// --- nodes
// -----------------------------------------------------------------------------------------------------

// In order of first use.
Status EntryEmitter::emit_once() {
  std::vector<bool> made(layout_.graph.nodes().size(), false);
  for (const Task& task : tasks_) {
    if (task.kind != TaskKind::kNode || !layout_.once[index(task.node)] || made[index(task.node)]) continue;
    made[index(task.node)] = true;
    const TensorId copy = layout_.graph.node(task.node).outputs[0];
    if (layout_.canonical_copy[index(copy)] == copy)
      TSR_RETURN_IF_ERROR(emit_node(task.node, EmitPhase::kForward, kNoTask));
  }
  return {};
}

Status EntryEmitter::emit_task(size_t task) {
  if (tasks_[task].kind == TaskKind::kSend) return send(tasks_[task]);
  if (tasks_[task].kind == TaskKind::kReceive) {
    TSR_RETURN_IF_ERROR(receive(tasks_[task], task));
    return commit_updates(task);
  }
  const NodeId id = tasks_[task].node;
  const Node& node = layout_.graph.node(id);
  if (layout_.once[index(id)]) return commit_updates(task);
  TSR_RETURN_IF_ERROR(emit_node(id, emit_phase_of(node), task));
  TSR_RETURN_IF_ERROR(offload(id, emit_phase_of(node)));
  TSR_RETURN_IF_ERROR(accumulate(id));
  for (const TensorId output : node.outputs) TSR_RETURN_IF_ERROR(fill_outputs(output, emit_phase_of(node), id));
  return commit_updates(task);
}

Tier EntryEmitter::tier_of(NodeId id) const { return layout_.nodes_plan(id).tier; }

Status EntryEmitter::emit_node(NodeId id, EmitPhase phase, size_t task) {
  const Node& node = layout_.graph.node(id);
  const NodeSharding& sharding = layout_.nodes[index(id)];
  const NodePlan& plan = layout_.nodes_plan(id);
  if (plan.chunk_factor != 0 && plan.chunks > 1)
    return plan.chunk_order == ChunkOrder::kRotating ? emit_rotating(id, phase) : emit_chunks(id, phase);
  std::vector<SlotRef> inputs(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (reads_input(node, i)) {
      // A running sum goes on from the micro-batch before.
      const bool goes_on = static_cast<int>(i) == node.op->sums_into && totals_.contains(node.outputs[0]);
      TSR_ASSIGN_OR_RETURN(inputs[i], goes_on ? materialize(node.outputs[0], sharding.inputs[i], EmitPhase::kUpdate, id, plan.tier)
                                              : materialize(node.inputs[i], sharding.inputs[i], phase, id, plan.tier));
    }
  if (!node.op->is_view) return emit_kernel(id, phase, task, std::move(inputs));
  TSR_CHECK(
      local_bytes(node.inputs[0], sharding.inputs[0]) == local_bytes(node.outputs[0], sharding.outputs[0]),
      "a view changes its size");
  add_copy(node.outputs[0], {sharding.outputs[0], inputs[0], phase, true});
  return {};
}

// Batch positions count over all micro-batches, so that position-dependent ops do not see the cut.
std::vector<FactorView> EntryEmitter::views_of(NodeId id) const {
  std::vector<FactorView> views =
      factor_views(layout_.nodes[index(id)], layout_.mesh, builder_.coordinates());
  for (size_t f = 0; f < views.size(); ++f) {
    if (layout_.batch_factors[index(id)][f]) {
      const int64_t extent = views[f].global_extent;
      views[f].global_extent = extent * layout_.micro_batches;
      views[f].begin[0] += extent * micro_batch_;
      views[f].end[0] += extent * micro_batch_;
    }
    const DimSharding& split = layout_.nodes[index(id)].factors[f];
    if (layout_.is_zigzag(id, f, split)) layout_.zigzag_view(split, views[f]);
  }
  return views;
}

Status EntryEmitter::launch(NodeId id, std::vector<TensorType> in_types, std::vector<TensorType> out_types,
                            std::vector<FactorView> views, std::vector<SlotRef> inputs,
                            std::vector<SlotRef> outputs) {
  const Node& node = layout_.graph.node(id);
  auto kernel =
      builder_.kernel(*node.op, node.attrs, std::move(in_types), std::move(out_types), std::move(views));
  if (!kernel.ok()) return kernel.status().with_context(describe(layout_.graph, id));
  KernelInst inst;
  inst.kernel = *kernel;
  inst.node = id;
  inst.micro_batch = micro_batch_;
  inst.inputs = std::move(inputs);
  inst.outputs = std::move(outputs);
  const int64_t workspace = builder_.program.kernels[static_cast<size_t>(*kernel)].workspace_bytes;
  if (workspace > 0)
    inst.workspace = builder_.add_slot(format("workspace({})", describe(layout_.graph, id)),
                                       SlotKind::kWorkspace, workspace, entry_, tier_of(id));
  out_.code.emplace_back(std::move(inst));
  return {};
}

Status EntryEmitter::emit_kernel(NodeId id, EmitPhase phase, size_t task, std::vector<SlotRef> inputs) {
  const Node& node = layout_.graph.node(id);
  const NodeSharding& sharding = layout_.nodes[index(id)];
  std::vector<TensorType> in_types, out_types;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    in_types.push_back(builder_.local_type(layout_.tensor(node.inputs[i]).type, sharding.inputs[i]));
  for (size_t o = 0; o < node.outputs.size(); ++o)
    out_types.push_back(builder_.local_type(layout_.tensor(node.outputs[o]).type, sharding.outputs[o]));
  std::vector<SlotRef> outputs;
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    outputs.push_back(output_slot(id, o, task));
    add_copy(node.outputs[o], {sharding.outputs[o], outputs.back(), phase, true});
  }
  return launch(id, std::move(in_types), std::move(out_types), views_of(id), std::move(inputs),
                std::move(outputs));
}

Result<std::vector<SlotRef>> EntryEmitter::launch_local(std::string_view name,
                                                        const std::vector<TensorType>& in_types,
                                                        const std::vector<TensorType>& out_types,
                                                        std::vector<SlotRef> inputs, NodeId node,
                                                        std::string_view tensor, Tier tier) {
  const OpDef* op = find_op(name);
  TSR_CHECK(op != nullptr, "ops that merge are registered");
  KernelInst inst;
  TSR_ASSIGN_OR_RETURN(inst.kernel, builder_.local_kernel(*op, {}, in_types, out_types));
  inst.inputs = std::move(inputs);
  for (const TensorType& type : out_types)
    inst.outputs.push_back(
        builder_.add_slot(format("sum({})", tensor), SlotKind::kTransient, bytes(type), entry_, tier));
  inst.node = node;
  inst.micro_batch = micro_batch_;
  const int64_t workspace = builder_.program.kernels[static_cast<size_t>(inst.kernel)].workspace_bytes;
  if (workspace > 0)
    inst.workspace =
        builder_.add_slot(format("workspace({})", name), SlotKind::kWorkspace, workspace, entry_, tier);
  std::vector<SlotRef> results = inst.outputs;
  out_.code.emplace_back(std::move(inst));
  return results;
}

// The slot of a kernel's output: in place of the parameter or state
// that it updates, directly in the fetched output, or its own.
SlotRef EntryEmitter::output_slot(NodeId id, size_t output, size_t task) {
  const Node& node = layout_.graph.node(id);
  const TensorId tensor = node.outputs[output];
  const ShardingSpec& produced = layout_.nodes[index(id)].outputs[output];
  const Shape& shape = layout_.tensor(tensor).type.shape;
  const Tier tier = tier_of(id);
  const auto fresh = [&] {
    return builder_.add_slot(layout_.tensor(tensor).name, SlotKind::kTransient, local_bytes(tensor, produced),
                             entry_, tier);
  };
  if (task == kNoTask) return fresh();

  const auto updates = layout_.graph.updates();
  const int in_place = output < node.op->in_place.size() ? node.op->in_place[output] : -1;
  for (const size_t u : in_place >= 0 ? updates_with(tensor) : std::span<const size_t>()) {
    if (node.inputs[static_cast<size_t>(in_place)] != updates[u].target) continue;
    const ShardingSpec& stored = layout_.spec[index(updates[u].target)];
    const ShardingSpec& read = layout_.nodes[index(id)].inputs[static_cast<size_t>(in_place)];
    const bool last = last_read_[u] <= task && micro_batch_ + 1 == layout_.micro_batches;
    const SlotRef at = persistent_[updates[u].target];
    if (!last || tier_at(at) != tier || !same_layout(read, stored, shape, layout_.mesh) ||
        !same_layout(produced, stored, shape, layout_.mesh))
      continue;
    committed_[u] = true;
    return at;
  }

  const auto outputs = layout_.graph.outputs();
  for (size_t o = 0; o < outputs.size() && tier == Tier::kDevice; ++o) {
    if (outputs[o].tensor != tensor || output_written_[o]) continue;
    const bool batched = layout_.batch_dim[index(tensor)] >= 0;
    if (!same_layout(produced, layout_.outputs[o], shape, layout_.mesh) ||
        (!batched && layout_.micro_batches > 1))
      continue;
    output_written_[o] = micro_batch_ + 1 == layout_.micro_batches;
    const SlotRef at = output_slots_[o];
    return SlotRef{at.slot,
                   at.offset + (batched ? micro_batch_ * local_bytes(tensor, layout_.outputs[o]) : 0)};
  }
  return fresh();
}

// --- sums over micro-batches, outputs, updates
// -----------------------------------------------------------------

Status EntryEmitter::accumulate(NodeId id) {
  const Node& node = layout_.graph.node(id);
  if (node.phase == Phase::kUpdate) return {};
  for (const TensorId tensor : node.outputs) {
    if (!layout_.accumulated[index(tensor)]) continue;
    if (layout_.micro_batches > 1 && layout_.parts[index(tensor)] == BatchPart::kSame &&
        totals_.contains(tensor))
      continue;
    const ShardingSpec& spec = layout_.accumulate[index(tensor)];
    // A single micro-batch needs no sum, but a value kept in another
    // tier moves there at once; an addend after its reduction.
    const bool moves_out = layout_.tier[index(tensor)] != Tier::kDevice && spec.partial.empty();
    if (layout_.micro_batches == 1 && !moves_out) continue;
    if (!spec.partial.empty() && spec.reduce != ReduceKind::kSum)
      return Status(
          StatusCode::kUnsupported,
          format("'{}' is a maximum and cannot be summed over micro-batches", layout_.tensor(tensor).name));
    // Sums are kept in their tier, except that files cannot add.
    const Tier tier = layout_.tier[index(tensor)], adds_in = tier == Tier::kFile ? Tier::kHost : tier;
    const TensorType local = builder_.local_type(layout_.tensor(tensor).type, spec);
    const auto carry = [&](SlotRef from, Tier to) {
      if (tier_at(from) == to) return from;
      const SlotRef out = builder_.add_slot(format("sum({})", layout_.tensor(tensor).name),
                                            SlotKind::kTransient, bytes(local), entry_, to);
      copy_bytes(from, out, bytes(local), id);
      return out;
    };
    TSR_ASSIGN_OR_RETURN(SlotRef at, materialize(tensor, spec, emit_phase_of(node), id, adds_in));
    if (totals_.contains(tensor) && node.op->sums_into < 0) {
      TSR_ASSIGN_OR_RETURN(
          const std::vector<SlotRef> sum,
          launch_local("add", {local, local}, {local}, {carry(totals_[tensor][0].at, adds_in), at}, id,
                       layout_.tensor(tensor).name, adds_in));
      at = sum[0];
    }
    at = carry(at, tier);
    totals_[tensor] = {{spec, at, EmitPhase::kUpdate, true}};
  }
  return {};
}

Status EntryEmitter::fill_outputs(TensorId tensor, EmitPhase phase, NodeId node) {
  const auto outputs = layout_.graph.outputs();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].tensor != tensor || output_written_[o]) continue;
    const bool batched = layout_.batch_dim[index(tensor)] >= 0;
    const bool last = micro_batch_ + 1 == layout_.micro_batches;
    if (!batched && !last) continue;
    const int64_t part = batched ? micro_batch_ * local_bytes(tensor, layout_.outputs[o]) : 0;
    const SlotRef at{output_slots_[o].slot, output_slots_[o].offset + part};
    const auto& copies = values()[index(tensor)];
    output_written_[o] = last;
    if (std::ranges::any_of(copies, [&](const Copy& copy) { return copy.at == at; }))
      continue;  // written by the kernel
    const EmitPhase from = !batched && totals_.contains(tensor) ? EmitPhase::kUpdate : phase;
    TSR_RETURN_IF_ERROR(materialize(tensor, layout_.outputs[o], from, node, Tier::kDevice, &at).status());
  }
  return {};
}

Status EntryEmitter::commit_updates(size_t task) {
  if (task == tasks_.size()) {
    for (size_t u = 0; u < last_read_.size(); ++u) TSR_RETURN_IF_ERROR(commit_update(u));
    return {};
  }
  ready_.insert(last_read_at_[task].begin(), last_read_at_[task].end());
  if (micro_batch_ + 1 != layout_.micro_batches) return {};
  // An update that is not possible yet is retried when its value is made, or after the last read of the old one.
  for (const size_t u : std::exchange(ready_, {}))
    if (last_read_[u] <= task) TSR_RETURN_IF_ERROR(commit_update(u));
  return {};
}

// No effect if it is done, its value is not made yet, or it is not kept here.
Status EntryEmitter::commit_update(size_t u) {
  const Update& update = layout_.graph.updates()[u];
  if (committed_[u] || values()[index(update.value)].empty() || !persistent_.contains(update.target))
    return {};
  const SlotRef at = persistent_[update.target];
  committed_[u] = true;
  return materialize(update.value, layout_.spec[index(update.target)], EmitPhase::kUpdate,
                     layout_.tensor(update.value).producer, tier_at(at), &at)
      .status();
}

// Inputs, parameters and state that are fetched unchanged.
Status EntryEmitter::copy_persistent_outputs() {
  const auto outputs = layout_.graph.outputs();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (output_written_[o] || !layout_.is_persistent(outputs[o].tensor)) continue;
    CopyInst copy;
    copy.in = persistent_[outputs[o].tensor];
    copy.out = output_slots_[o];
    copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes =
        builder_.program.slots[static_cast<size_t>(copy.out.slot)].bytes;
    out_.code.emplace_back(copy);
    output_written_[o] = true;
  }
  return {};
}

}  // namespace tessera
