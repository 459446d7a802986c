// Messages between pipeline stages: from each rank to the one in the same
// position, in the producer's layout (or summed over micro-batches).
#include "graph/base/text.h"
#include "parallel/lowering/entry_emitter.h"

namespace tessera {

int32_t EntryEmitter::peer_rank(const Task& task) const {
  return layout_.places[static_cast<size_t>(task.peer)].devices[static_cast<size_t>(builder_.position())];
}

Status EntryEmitter::send(const Task& task) {
  const ShardingSpec& spec = (task.total ? layout_.accumulate : layout_.spec)[index(task.tensor)];
  const NodeId producer = layout_.tensor(task.tensor).producer;
  const EmitPhase phase = task.total ? EmitPhase::kUpdate : emit_phase_of(layout_.graph.node(producer));
  SendInst inst;
  TSR_ASSIGN_OR_RETURN(inst.in, materialize(task.tensor, spec, phase, task.node));
  inst.peer = peer_rank(task);
  inst.bytes = local_bytes(task.tensor, spec);
  inst.node = task.node;
  inst.micro_batch = micro_batch_;
  if (inst.bytes == 0) return {};
  // Adjacent messages are one exchange: a value received in it cannot be forwarded in it.
  for (size_t at = out_.code.size(); at-- > 0;) {
    const auto* before = std::get_if<RecvInst>(&out_.code[at]);
    if (before == nullptr && !std::holds_alternative<SendInst>(out_.code[at])) break;
    if (before == nullptr || before->out.slot != inst.in.slot) continue;
    const SlotRef out = builder_.add_slot(format("send({})", layout_.tensor(task.tensor).name),
                                          SlotKind::kTransient, inst.bytes, entry_);
    copy_bytes(inst.in, out, inst.bytes, task.node);
    inst.in = out;
    break;
  }
  out_.code.emplace_back(inst);
  return {};
}

Status EntryEmitter::receive(const Task& task, size_t at) {
  const ShardingSpec& spec = (task.total ? layout_.accumulate : layout_.spec)[index(task.tensor)];
  RecvInst inst;
  inst.peer = peer_rank(task);
  inst.bytes = local_bytes(task.tensor, spec);
  inst.node = task.node;
  inst.micro_batch = micro_batch_;
  // A mirror replaces its value once nothing reads the old one.
  const auto updates = layout_.graph.updates();
  for (const size_t u : updates_with(task.tensor)) {
    const TensorId target = updates[u].target;
    if (inst.out.slot >= 0 || task.total || committed_[u] || !persistent_.contains(target) ||
        last_read_[u] > at || tier_at(persistent_[target]) != Tier::kDevice ||
        !same_layout(spec, layout_.spec[index(target)], layout_.tensor(target).type.shape, layout_.mesh))
      continue;
    inst.out = persistent_[target];
    committed_[u] = true;
  }
  if (inst.out.slot < 0)
    inst.out = builder_.add_slot(format("receive({})", layout_.tensor(task.tensor).name),
                                 SlotKind::kTransient, inst.bytes, entry_);
  // Not of the forward phase, whatever made it: it is neither recomputed nor offloaded here.
  const Copy copy{spec, inst.out, EmitPhase::kBackward, true};
  if (task.total) {
    totals_[task.tensor] = {copy};
  } else {
    values()[index(task.tensor)].push_back(copy);
    for (const size_t update : updates_with(task.tensor)) ready_.insert(update);
  }
  if (inst.bytes > 0) out_.code.emplace_back(inst);
  return {};
}

}  // namespace tessera
