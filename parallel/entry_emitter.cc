#include "parallel/entry_emitter.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

SlotKind slot_kind(TensorKind kind) {
  constexpr SlotKind kKinds[] = {SlotKind::kInput, SlotKind::kParameter, SlotKind::kConstant,
                                 SlotKind::kState};
  return kKinds[static_cast<size_t>(kind)];
}

}  // namespace

EntryEmitter::Era EntryEmitter::era_of(const Node& node) {
  if (node.phase == Phase::kForward) return Era::kForward;
  return node.phase == Phase::kUpdate ? Era::kUpdate : Era::kBackward;
}

Result<EntryPoint> EntryEmitter::emit() {
  const Graph& graph = layout_.graph;
  out_.name = layout_.name;
  TSR_RETURN_IF_ERROR(add_persistent_slots());
  add_output_slots();

  committed_.assign(graph.updates().size(), false);
  find_last_reads();
  enter_micro_batch(0);
  for (size_t task = 0; task < tasks_.size(); ++task) {
    enter_micro_batch(tasks_[task].micro_batch);
    TSR_RETURN_IF_ERROR(emit_task(task));
  }
  TSR_RETURN_IF_ERROR(commit_updates(tasks_.size()));
  TSR_RETURN_IF_ERROR(copy_persistent_outputs());
  return std::move(out_);
}

void EntryEmitter::find_last_reads() {
  const Graph& graph = layout_.graph;
  std::vector<size_t> last(graph.tensors().size(), 0);
  for (size_t task = 0; task < tasks_.size(); ++task) {
    const Node& node = graph.node(tasks_[task].node);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (reads_input(node, i)) last[index(viewed(graph, node.inputs[i]))] = task;
  }
  for (const Update& update : graph.updates()) last_read_.push_back(last[index(update.target)]);
}

// --- slots that are there before a run
// -------------------------------------------------------------------------

Status EntryEmitter::add_persistent_slots() {
  const Graph& graph = layout_.graph;
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::kActivation) continue;
    if (tensor.kind != TensorKind::kInput) {
      TSR_RETURN_IF_ERROR(add_shared_slot(id));
      continue;
    }
    const int32_t copies = layout_.batch_dim[t] >= 0 ? layout_.micro_batches : 1;
    const SlotRef at =
        builder_.add_slot(tensor.name, SlotKind::kInput, copies * local_bytes(id, layout_.spec[t]), -1);
    persistent_[id] = at;
    out_.inputs.push_back({tensor.name, layout_.whole_type(id), pieces(id, layout_.spec[t], at)});
  }
  return {};
}

Status EntryEmitter::add_shared_slot(TensorId id) {
  const Tensor& tensor = layout_.tensor(id);
  const ShardingSpec& spec = layout_.spec[index(id)];
  if (const auto at = shared_.find(tensor.name); at != shared_.end()) {
    const SharedSlot& known = at->second;
    if (known.kind != tensor.kind || known.type != tensor.type)
      return Status(StatusCode::kInvalidArgument, format("'{}' is {} here and {} in an earlier entry",
                                                         tensor.name, tensor.type, known.type));
    if (!same_layout(known.spec, spec, tensor.type.shape, layout_.mesh))
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' lies as {} here and as {} in an earlier entry; plan the entries alike",
                           tensor.name, to_text(spec, layout_.mesh), to_text(known.spec, layout_.mesh)));
    persistent_[id] = known.at;
    return {};
  }
  const SlotRef at = builder_.add_slot(tensor.name, slot_kind(tensor.kind), local_bytes(id, spec), -1);
  persistent_[id] = at;
  shared_[tensor.name] = {tensor.type, spec, tensor.kind, at};
  RankProgram& program = builder_.program;
  auto& bindings = tensor.kind == TensorKind::kParameter ? program.parameters
                   : tensor.kind == TensorKind::kState   ? program.states
                                                         : program.constants;
  bindings.push_back({tensor.name, tensor.type, pieces(id, spec, at)});
  return {};
}

void EntryEmitter::add_output_slots() {
  const auto outputs = layout_.graph.outputs();
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorId id = outputs[o].tensor;
    const int32_t copies = layout_.batch_dim[index(id)] >= 0 ? layout_.micro_batches : 1;
    const SlotRef at = builder_.add_slot(outputs[o].name, SlotKind::kOutput,
                                         copies * local_bytes(id, layout_.outputs[o]), -1);
    output_slots_.push_back(at);
    out_.outputs.push_back({outputs[o].name, layout_.whole_type(id), pieces(id, layout_.outputs[o], at)});
  }
  output_written_.assign(outputs.size(), false);
}

std::vector<Piece> EntryEmitter::pieces(TensorId id, const ShardingSpec& spec, SlotRef at) const {
  const Shape& shape = layout_.tensor(id).type.shape;
  const Box box = local_box(shape, spec, layout_.mesh, builder_.coordinates());
  const int dim = layout_.batch_dim[index(id)];
  if (dim < 0) return {{at, box}};
  std::vector<Piece> all;
  for (int32_t j = 0; j < layout_.micro_batches; ++j) {
    Box part = box;
    part[static_cast<size_t>(dim)].begin += j * shape[dim];
    part[static_cast<size_t>(dim)].end += j * shape[dim];
    all.push_back({{at.slot, at.offset + j * local_bytes(id, spec)}, std::move(part)});
  }
  return all;
}

int64_t EntryEmitter::local_bytes(TensorId id, const ShardingSpec& spec) const {
  return bytes(builder_.local_type(layout_.tensor(id).type, spec));
}

// --- values
// ----------------------------------------------------------------------------------------------------

void EntryEmitter::enter_micro_batch(int32_t micro_batch) {
  micro_batch_ = micro_batch;
  const auto [at_values, is_new] = live_.try_emplace(micro_batch, layout_.graph.tensors().size());
  if (!is_new) return;
  Values& values = at_values->second;
  for (const auto& [id, at] : persistent_) {
    const ShardingSpec& spec = layout_.spec[index(id)];
    const bool cut = layout_.tensor(id).kind == TensorKind::kInput && layout_.batch_dim[index(id)] >= 0;
    const int64_t offset = cut ? micro_batch * local_bytes(id, spec) : 0;
    values[index(id)].push_back({spec, {at.slot, at.offset + offset}, Era::kForward, true});
  }
}

std::vector<EntryEmitter::Copy>& EntryEmitter::copies_of(TensorId id, Era era) {
  if (era == Era::kUpdate)
    if (const auto at = totals_.find(id); at != totals_.end()) return at->second;
  return values()[index(id)];
}

Result<SlotRef> EntryEmitter::obtain(TensorId id, const ShardingSpec& want, Era era, NodeId node,
                                     const SlotRef* destination) {
  const TensorType& type = layout_.tensor(id).type;
  std::vector<Copy>& copies = copies_of(id, era);
  size_t nearest = copies.size();
  ReshardPath path;
  Status why(StatusCode::kInternal, format("'{}' is read before it is made", layout_.tensor(id).name));
  for (size_t c = 0; c < copies.size(); ++c) {
    if (!copies[c].kept && copies[c].era != era) continue;
    auto candidate = layout_.resharder->path(copies[c].spec, want, type.shape, type.dtype);
    if (!candidate.ok()) {
      why = candidate.status();
      continue;
    }
    if (nearest < copies.size() && candidate->cost >= path.cost) continue;
    nearest = c;
    path = std::move(*candidate);
  }
  if (nearest == copies.size())
    return why.with_context(format("'{}' for {}", layout_.tensor(id).name,
                                   node == kNoNode ? "an output" : describe(layout_.graph, node)));

  SlotRef at = copies[nearest].at;
  bool resolved = copies[nearest].kept;
  const RankBuilder::MoveContext context{layout_.tensor(id).name, node, micro_batch_, entry_};
  for (size_t m = 0; m < path.moves.size(); ++m) {
    const Move& move = path.moves[m];
    const bool last = m + 1 == path.moves.size();
    at = builder_.emit_move(move, type, at, last ? destination : nullptr, context, out_.code);
    // The result of a reduction stays good for everyone; what is gathered or cut from it does not.
    resolved = resolved && (move.kind == MoveKind::kReduceScatter || move.kind == MoveKind::kAllReduce);
    copies.push_back({move.after, at, era, resolved});
  }
  if (path.moves.empty() && destination != nullptr) {
    CopyInst copy;
    copy.in = at;
    copy.out = at = *destination;
    copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = local_bytes(id, want);
    copy.node = node;
    copy.micro_batch = micro_batch_;
    out_.code.emplace_back(copy);
  }
  return at;
}

// --- nodes
// -----------------------------------------------------------------------------------------------------

Status EntryEmitter::emit_task(size_t task) {
  const Node& node = layout_.graph.node(tasks_[task].node);
  TSR_RETURN_IF_ERROR(emit_node(task));
  TSR_RETURN_IF_ERROR(accumulate(task));
  for (const TensorId output : node.outputs)
    TSR_RETURN_IF_ERROR(fill_outputs(output, era_of(node), tasks_[task].node));
  return commit_updates(task);
}

Status EntryEmitter::emit_node(size_t task) {
  const NodeId id = tasks_[task].node;
  const Node& node = layout_.graph.node(id);
  const NodeSharding& sharding = layout_.nodes[index(id)];
  std::vector<SlotRef> inputs(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (reads_input(node, i)) {
      TSR_ASSIGN_OR_RETURN(inputs[i], obtain(node.inputs[i], sharding.inputs[i], era_of(node), id));
    }
  if (!node.op->is_view) return emit_kernel(task, std::move(inputs));
  TSR_CHECK(
      local_bytes(node.inputs[0], sharding.inputs[0]) == local_bytes(node.outputs[0], sharding.outputs[0]),
      "a view changes its size");
  values()[index(node.outputs[0])].push_back({sharding.outputs[0], inputs[0], era_of(node), true});
  return {};
}

Status EntryEmitter::emit_kernel(size_t task, std::vector<SlotRef> inputs) {
  const NodeId id = tasks_[task].node;
  const Node& node = layout_.graph.node(id);
  const NodeSharding& sharding = layout_.nodes[index(id)];
  std::vector<TensorType> in_types, out_types;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    in_types.push_back(builder_.local_type(layout_.tensor(node.inputs[i]).type, sharding.inputs[i]));
  for (size_t o = 0; o < node.outputs.size(); ++o)
    out_types.push_back(builder_.local_type(layout_.tensor(node.outputs[o]).type, sharding.outputs[o]));

  // Position along the batch counts over all micro-batches, so that what depends on it does not see the cut.
  std::vector<FactorView> views = factor_views(sharding, layout_.mesh, builder_.coordinates());
  for (size_t f = 0; f < views.size(); ++f) {
    if (!layout_.batch_factors[index(id)][f]) continue;
    const int64_t extent = views[f].global_extent;
    views[f].global_extent = extent * layout_.micro_batches;
    views[f].begin[0] += extent * micro_batch_;
    views[f].end[0] += extent * micro_batch_;
  }
  auto kernel =
      builder_.kernel(*node.op, node.attrs, std::move(in_types), std::move(out_types), std::move(views));
  if (!kernel.ok()) return kernel.status().with_context(describe(layout_.graph, id));

  KernelInst inst;
  inst.kernel = *kernel;
  inst.node = id;
  inst.micro_batch = micro_batch_;
  inst.inputs = std::move(inputs);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    TSR_ASSIGN_OR_RETURN(const SlotRef at, output_slot(task, o));
    inst.outputs.push_back(at);
    values()[index(node.outputs[o])].push_back({sharding.outputs[o], at, era_of(node), true});
  }
  const int64_t workspace = builder_.program.kernels[static_cast<size_t>(*kernel)].workspace_bytes;
  if (workspace > 0)
    inst.workspace = builder_.add_slot(format("workspace({})", describe(layout_.graph, id)),
                                       SlotKind::kWorkspace, workspace, entry_);
  out_.code.emplace_back(std::move(inst));
  return {};
}

// Where an output of a kernel goes: over the parameter or state that it updates, straight into what will be
// fetched, or into a slot of its own.
Result<SlotRef> EntryEmitter::output_slot(size_t task, size_t output) {
  const NodeId id = tasks_[task].node;
  const Node& node = layout_.graph.node(id);
  const TensorId tensor = node.outputs[output];
  const ShardingSpec& produced = layout_.nodes[index(id)].outputs[output];
  const Shape& shape = layout_.tensor(tensor).type.shape;

  const auto updates = layout_.graph.updates();
  const int in_place = output < node.op->in_place.size() ? node.op->in_place[output] : -1;
  for (size_t u = 0; u < updates.size() && in_place >= 0; ++u) {
    if (updates[u].value != tensor || node.inputs[static_cast<size_t>(in_place)] != updates[u].target)
      continue;
    const ShardingSpec& stored = layout_.spec[index(updates[u].target)];
    const ShardingSpec& read = layout_.nodes[index(id)].inputs[static_cast<size_t>(in_place)];
    const bool last = last_read_[u] <= task && micro_batch_ + 1 == layout_.micro_batches;
    if (!last || !same_layout(read, stored, shape, layout_.mesh) ||
        !same_layout(produced, stored, shape, layout_.mesh))
      continue;
    committed_[u] = true;
    return persistent_[updates[u].target];
  }

  const auto outputs = layout_.graph.outputs();
  for (size_t o = 0; o < outputs.size(); ++o) {
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
  return builder_.add_slot(layout_.tensor(tensor).name, SlotKind::kTransient, local_bytes(tensor, produced),
                           entry_);
}

// --- sums over micro-batches, outputs, updates
// -----------------------------------------------------------------

Status EntryEmitter::accumulate(size_t task) {
  const NodeId id = tasks_[task].node;
  const Node& node = layout_.graph.node(id);
  if (node.phase == Phase::kUpdate) return {};
  for (const TensorId tensor : node.outputs) {
    if (!layout_.crossing[index(tensor)]) continue;
    const ShardingSpec& spec = layout_.accumulate[index(tensor)];
    if (layout_.micro_batches == 1) continue;
    if (!spec.partial.empty() && spec.reduce != ReduceKind::kSum)
      return Status(
          StatusCode::kUnsupported,
          format("'{}' is a maximum and cannot be summed over micro-batches", layout_.tensor(tensor).name));
    TSR_ASSIGN_OR_RETURN(SlotRef at, obtain(tensor, spec, era_of(node), id));
    if (totals_.contains(tensor)) {
      const OpDef* add = find_op("add");
      TSR_CHECK(add != nullptr, "op 'add' is registered");
      const TensorType local = builder_.local_type(layout_.tensor(tensor).type, spec);
      const std::vector<TensorType> in_types = {local, local}, out_types = {local};
      ShardingRule rule = add->sharding({{}, in_types, out_types, {}});
      TSR_RETURN_IF_ERROR(bind_extents(rule, in_types, out_types));
      std::vector<FactorView> views;
      for (const Factor& factor : rule.factors) {
        FactorView view;
        view.name = factor.name;
        view.global_extent = view.end[0] = factor.extent;
        views.push_back(view);
      }
      KernelInst inst;
      TSR_ASSIGN_OR_RETURN(inst.kernel, builder_.kernel(*add, {}, in_types, out_types, std::move(views)));
      inst.inputs = {totals_[tensor][0].at, at};
      at = builder_.add_slot(format("sum({})", layout_.tensor(tensor).name), SlotKind::kTransient,
                             bytes(local), entry_);
      inst.outputs = {at};
      inst.node = id;
      inst.micro_batch = micro_batch_;
      out_.code.emplace_back(std::move(inst));
    }
    totals_[tensor] = {{spec, at, Era::kUpdate, true}};
  }
  return {};
}

Status EntryEmitter::fill_outputs(TensorId tensor, Era era, NodeId node) {
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
    const Era from = !batched && totals_.contains(tensor) ? Era::kUpdate : era;
    TSR_RETURN_IF_ERROR(obtain(tensor, layout_.outputs[o], from, node, &at).status());
  }
  return {};
}

Status EntryEmitter::commit_updates(size_t task) {
  const auto updates = layout_.graph.updates();
  const bool end = task == tasks_.size();
  for (size_t u = 0; u < updates.size(); ++u) {
    if (committed_[u] || (!end && (last_read_[u] > task || micro_batch_ + 1 != layout_.micro_batches)))
      continue;
    if (values()[index(updates[u].value)].empty()) continue;  // not made yet
    const NodeId producer = layout_.tensor(updates[u].value).producer;
    const SlotRef at = persistent_[updates[u].target];
    committed_[u] = true;
    TSR_RETURN_IF_ERROR(
        obtain(updates[u].value, layout_.spec[index(updates[u].target)], Era::kUpdate, producer, &at)
            .status());
  }
  return {};
}

// Inputs, parameters and state that are fetched as they are.
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
