// Layouts of a value, and its conversion to a node's.
#include <algorithm>

#include "graph/base/text.h"
#include "parallel/lowering/entry_emitter.h"

namespace tessera {

std::vector<EntryEmitter::Copy>& EntryEmitter::copies_of(TensorId id, EmitPhase phase) {
  if (phase == EmitPhase::kUpdate)
    if (const auto at = totals_.find(id); at != totals_.end()) return at->second;
  return values()[index(id)];
}

bool EntryEmitter::usable(TensorId id, const Copy& copy, EmitPhase phase) const {
  if (!copy.kept && copy.phase != phase) return false;
  if (phase != EmitPhase::kBackward || copy.phase != EmitPhase::kForward) return true;
  // Recomputed and offloaded values are gone from the device when backward begins.
  if (layout_.recompute[index(id)]) return false;
  return layout_.offload[index(id)] == Tier::kDevice || tier_at(copy.at) != Tier::kDevice;
}

Result<EntryEmitter::ReshardRoute> EntryEmitter::route(TensorId id, const ShardingSpec& want, EmitPhase phase,
                                                       NodeId node, Tier tier) {
  // A copy in the requested tier always precedes one in another.
  constexpr double kOtherTier = 1e15;
  const TensorType& type = layout_.tensor(id).type;
  const std::vector<Copy>& copies = copies_of(id, phase);
  std::optional<ReshardRoute> best;
  double best_cost = 0;
  Status why(StatusCode::kInternal, format("'{}' is read before it is made", layout_.tensor(id).name));
  for (size_t c = 0; c < copies.size(); ++c) {
    if (!usable(id, copies[c], phase)) continue;
    auto path = layout_.resharder->path(copies[c].spec, want, type.shape, type.dtype);
    if (!path.ok()) {
      why = path.status();
      continue;
    }
    const double cost = path->cost + (tier_at(copies[c].at) == tier ? 0 : kOtherTier);
    if (best && cost >= best_cost) continue;
    best_cost = cost;
    best = ReshardRoute{c, std::move(*path)};
  }
  if (best) why = check_path(id, best->path);
  if (!why.ok())
    return why.with_context(format("'{}' for {}", layout_.tensor(id).name,
                                   node == kNoNode ? "an output" : describe(layout_.graph, node)));
  return std::move(*best);
}

// Zigzag order is valid only while the sequence is split: gathered, its tokens would be out of order.
Status EntryEmitter::check_path(TensorId id, const ReshardPath& path) const {
  if (layout_.plan->zigzag.empty()) return {};
  const std::vector<bool>& sequences = layout_.sequences.dims[index(id)];
  const auto is_sequence = [&](int dim) { return dim >= 0 && sequences[static_cast<size_t>(dim)]; };
  for (const Move& move : path.moves)
    for (const AxisId axis : move.axes)
      if (layout_.is_zigzag_axis(axis) && (is_sequence(move.dim) || is_sequence(move.to_dim)))
        return Status(
            StatusCode::kUnsupported,
            format("'{}' lies zig-zag over axis '{}' and would be put together or cut along it ({}); "
                   "plan it without zig-zag",
                   layout_.tensor(id).name, layout_.mesh.axes[axis].name, to_text(move.kind)));
  return {};
}

void EntryEmitter::copy_bytes(SlotRef in, SlotRef out, int64_t bytes, NodeId node) {
  CopyInst copy;
  copy.in = in;
  copy.out = out;
  copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = bytes;
  copy.node = node;
  copy.micro_batch = micro_batch_;
  if (bytes > 0) out_.code.emplace_back(copy);
}

void EntryEmitter::copy_window(const TensorType& in_type, SlotRef in, int64_t in_at,
                               const TensorType& out_type, SlotRef out, int64_t out_at, int dim,
                               int64_t count, NodeId node) {
  int64_t rows = 1, inner = 1;
  for (int d = 0; d < dim; ++d) rows *= in_type.shape[d];
  for (int d = dim + 1; d < in_type.shape.rank(); ++d) inner *= in_type.shape[d];
  CopyInst copy;
  copy.in = {in.slot, in.offset + dtype_bytes(in_type.dtype, in_at * inner)};
  copy.out = {out.slot, out.offset + dtype_bytes(in_type.dtype, out_at * inner)};
  copy.rows = rows;
  copy.row_bytes = dtype_bytes(in_type.dtype, count * inner);
  copy.in_stride_bytes = dtype_bytes(in_type.dtype, in_type.shape[dim] * inner);
  copy.out_stride_bytes = dtype_bytes(in_type.dtype, out_type.shape[dim] * inner);
  copy.node = node;
  copy.micro_batch = micro_batch_;
  if (rows > 0 && copy.row_bytes > 0) out_.code.emplace_back(copy);
}

Result<SlotRef> EntryEmitter::materialize(TensorId id, const ShardingSpec& want, EmitPhase phase, NodeId node,
                                          Tier tier, const SlotRef* destination) {
  id = layout_.canonical_copy[index(id)];
  const Tensor& tensor = layout_.tensor(id);
  std::vector<Copy>& copies = copies_of(id, phase);
  const bool gone = layout_.recompute[index(id)] && phase == EmitPhase::kBackward &&
                    std::ranges::none_of(copies, [&](const Copy& copy) { return usable(id, copy, phase); });
  if (gone) TSR_RETURN_IF_ERROR(emit_node(tensor.producer, EmitPhase::kBackward, kNoTask));

  TSR_ASSIGN_OR_RETURN(const ReshardRoute route, this->route(id, want, phase, node, tier));
  const ReshardPath& path = route.path;
  SlotRef at = copies[route.copy].at;
  bool kept = copies[route.copy].kept;
  const auto move_tier = [&](const ShardingSpec& spec, Tier to, bool last) {
    const SlotRef out =
        last && destination != nullptr
            ? *destination
            : builder_.add_slot(format("{}({})", to == Tier::kDevice ? "fetch" : "store", tensor.name),
                                SlotKind::kTransient, local_bytes(id, spec), entry_, to);
    copy_bytes(at, out, local_bytes(id, spec), node);
    at = out;
  };
  // Collectives run on the device.
  if (!path.moves.empty() && tier_at(at) != Tier::kDevice) {
    move_tier(path.moves.front().before, Tier::kDevice, false);
    copies.push_back({path.moves.front().before, at, phase, false});
  }
  const RankBuilder::MoveContext context{tensor.name, node, micro_batch_, entry_, {}};
  for (size_t m = 0; m < path.moves.size(); ++m) {
    const Move& move = path.moves[m];
    const bool last = m + 1 == path.moves.size() && tier == Tier::kDevice;
    at = builder_.emit_move(move, tensor.type, at, last ? destination : nullptr, context, out_.code);
    // Results of reductions and exchanges stay valid for all consumers, being no larger
    // than their source; gathered or sliced ones do not, unless the plan keeps them.
    kept = kept && (move.kind == MoveKind::kReduceScatter || move.kind == MoveKind::kAllReduce ||
                    move.kind == MoveKind::kAllToAll || layout_.keep_gathered[index(id)]);
    if (&copies == &values()[index(id)])
      add_copy(id, {move.after, at, phase, kept});
    else
      copies.push_back({move.after, at, phase, kept});
  }
  if (tier_at(at) != tier) {
    move_tier(want, tier, true);
    // A value brought to the device stays for this phase's readers, an offloaded one stays
    // offloaded. Updates read a value rarely, far apart, so one brought for an update is not kept.
    if (phase != EmitPhase::kUpdate || tier_at(copies[route.copy].at) == Tier::kDevice || !path.moves.empty())
      copies.push_back({want, at, phase, tier != Tier::kDevice && kept});
  } else if (destination != nullptr && !(at == *destination)) {
    copy_bytes(at, *destination, local_bytes(id, want), node);
    at = *destination;
    if (path.moves.empty()) copies.push_back({want, at, phase, kept});
  }
  return at;
}

Result<SlotRef> EntryEmitter::materialize_slice(TensorId id, const ShardingSpec& want, const DimWindow& window,
                                                EmitPhase phase, NodeId node) {
  id = layout_.canonical_copy[index(id)];
  const Tensor& tensor = layout_.tensor(id);
  std::vector<Copy>& copies = copies_of(id, phase);
  const bool gone = layout_.recompute[index(id)] && phase == EmitPhase::kBackward &&
                    std::ranges::none_of(copies, [&](const Copy& copy) { return usable(id, copy, phase); });
  if (gone) TSR_RETURN_IF_ERROR(emit_node(tensor.producer, EmitPhase::kBackward, kNoTask));
  TSR_ASSIGN_OR_RETURN(ReshardRoute route, this->route(id, want, phase, node, Tier::kDevice));
  Copy from = copies[route.copy];
  // Ranks that split the cut dim hold different slices; over their axes only the whole can move.
  const std::vector<AxisId>& split_over = want.dims[static_cast<size_t>(window.dim)].axes;
  const bool meets_other_slices = std::ranges::any_of(route.path.moves, [&](const Move& move) {
    return move.kind != MoveKind::kSlice && std::ranges::any_of(move.axes, [&](AxisId axis) {
             return std::ranges::count(split_over, axis) > 0;
           });
  });
  if (meets_other_slices) {
    TSR_ASSIGN_OR_RETURN(from.at, materialize(id, want, phase, node));
    from.spec = want;
    route.path.moves.clear();
  }
  const TensorType whole = builder_.local_type(tensor.type, from.spec);
  const TensorType part = builder_.local_type(tensor.type, from.spec, window);
  const int64_t first = builder_.local_dim(tensor.type, from.spec, window.dim, window).begin -
                        builder_.local_dim(tensor.type, from.spec, window.dim).begin;
  SlotRef at = from.at;
  int64_t rows = 1, inner = 1;
  for (int d = 0; d < window.dim; ++d) rows *= whole.shape[d];
  for (int d = window.dim + 1; d < whole.shape.rank(); ++d) inner *= whole.shape[d];
  if (tier_at(at) == Tier::kDevice && (rows == 1 || bytes(part) == 0)) {
    at.offset += dtype_bytes(whole.dtype, first * inner);
  } else if (tier_at(at) != Tier::kDevice || part.shape[window.dim] != whole.shape[window.dim]) {
    at = builder_.add_slot(format("slice({})", tensor.name), SlotKind::kTransient, bytes(part), entry_);
    copy_window(whole, from.at, first, part, at, 0, window.dim, part.shape[window.dim], node);
  }
  const RankBuilder::MoveContext context{tensor.name, node, micro_batch_, entry_, window};
  for (const Move& move : route.path.moves)
    at = builder_.emit_move(move, tensor.type, at, nullptr, context, out_.code);
  return at;
}

// Offloads values that backward reads, in the producer's layout.
Status EntryEmitter::offload(NodeId id, EmitPhase phase) {
  if (phase != EmitPhase::kForward) return {};
  for (const TensorId output : layout_.graph.node(id).outputs) {
    const Tier tier = layout_.offload[index(output)];
    if (tier == Tier::kDevice) continue;
    const auto& copies = values()[index(output)];
    if (copies.empty()) continue;
    const ShardingSpec spec = copies.front().spec;
    const SlotRef out = builder_.add_slot(format("saved({})", layout_.tensor(output).name),
                                          SlotKind::kTransient, local_bytes(output, spec), entry_, tier);
    copy_bytes(copies.front().at, out, local_bytes(output, spec), id);
    values()[index(output)].push_back({spec, out, EmitPhase::kForward, true});
  }
  return {};
}

}  // namespace tessera
