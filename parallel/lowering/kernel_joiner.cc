#include "parallel/lowering/kernel_joiner.h"

#include <algorithm>
#include <string>

#include "parallel/lowering/touched_slots.h"

namespace tessera {

namespace {

bool any_between(const std::vector<size_t>& places, size_t begin, size_t end) {
  return std::ranges::any_of(places, [&](size_t at) { return begin < at && at < end; });
}

// Results overlap no operand, except where the kernel allows that.
bool lies_apart(const KernelJoiner::Joined& joined) {
  for (size_t o = 0; o < joined.outputs.size(); ++o)
    for (size_t i = 0; i < joined.inputs.size(); ++i) {
      const bool in_place = o < joined.op->in_place.size() && joined.op->in_place[o] == static_cast<int>(i);
      if (joined.outputs[o].slot == joined.inputs[i].slot &&
          !(in_place && joined.outputs[o] == joined.inputs[i]))
        return false;
    }
  return true;
}

}  // namespace

KernelJoiner::KernelJoiner(EntryPoint& entry, int32_t index, RankBuilder& builder)
    : code_(entry.code), index_(index), builder_(builder), program_(builder.program) {
  readers_.resize(program_.slots.size());
  writers_.resize(program_.slots.size());
  gone_.resize(code_.size(), false);
  for (size_t at = 0; at < code_.size(); ++at) note(at);
}

void KernelJoiner::note(size_t at) {
  const TouchedSlots touched = touched_slots(code_[at]);
  for (const int32_t slot : touched.reads) readers_[static_cast<size_t>(slot)].push_back(at);
  for (const int32_t slot : touched.writes) writers_[static_cast<size_t>(slot)].push_back(at);
}

void KernelJoiner::forget(size_t at) {
  const TouchedSlots touched = touched_slots(code_[at]);
  for (const int32_t slot : touched.reads) std::erase(readers_[static_cast<size_t>(slot)], at);
  for (const int32_t slot : touched.writes) std::erase(writers_[static_cast<size_t>(slot)], at);
}

bool KernelJoiner::is_value(SlotRef ref) const {
  if (ref.slot < 0 || ref.offset != 0) return false;
  const auto slot = static_cast<size_t>(ref.slot);
  return program_.slots[slot].kind == SlotKind::kTransient && program_.slots[slot].tier == Tier::kDevice &&
         writers_[slot].size() == 1;
}

KernelJoiner::Joined KernelJoiner::as_joined(const KernelInst& kernel) const {
  const KernelDesc& desc = desc_of(kernel);
  return {.op = desc.op,
          .attrs = desc.attrs,
          .inputs = kernel.inputs,
          .outputs = kernel.outputs,
          .in_types = desc.inputs,
          .out_types = desc.outputs,
          .node = kernel.node};
}

std::optional<size_t> KernelJoiner::maker_of(SlotRef ref) const {
  if (!is_value(ref)) return std::nullopt;
  const size_t at = writers_[static_cast<size_t>(ref.slot)][0];
  return kernel_at(at) == nullptr ? std::nullopt : std::optional(at);
}

bool KernelJoiner::may_move(size_t from, size_t to) const {
  const auto [begin, end] = std::minmax(from, to);
  const TouchedSlots touched = touched_slots(code_[from]);
  const auto written = [&](int32_t slot) {
    return any_between(writers_[static_cast<size_t>(slot)], begin, end);
  };
  const auto read = [&](int32_t slot) {
    return any_between(readers_[static_cast<size_t>(slot)], begin, end);
  };
  return std::ranges::none_of(touched.reads, written) && std::ranges::none_of(touched.writes, written) &&
         std::ranges::none_of(touched.writes, read);
}

bool KernelJoiner::on_device(const KernelInst& kernel) const {
  const auto there = [&](const SlotRef& ref) {
    return ref.slot < 0 || program_.slots[static_cast<size_t>(ref.slot)].tier == Tier::kDevice;
  };
  return std::ranges::all_of(kernel.inputs, there) && std::ranges::all_of(kernel.outputs, there);
}

bool KernelJoiner::replace(const std::vector<size_t>& members, Joined joined) {
  if (!lies_apart(joined)) return false;
  double apart_s = 0;
  for (const size_t at : members) {
    if (!on_device(*kernel_at(at))) return false;
    apart_s += desc_of(*kernel_at(at)).seconds;
  }
  const Result<int32_t> made = builder_.local_kernel(*joined.op, joined.attrs, std::move(joined.in_types),
                                                     std::move(joined.out_types));
  if (!made.ok()) return false;  // not every backend has every kernel
  const KernelDesc& desc = program_.kernels[static_cast<size_t>(*made)];
  if (desc.seconds >= apart_s) return false;
  // Another kernel variant may sum in another order.
  if (!builder_.catalog().fuses() && desc.variant != desc_of(*kernel_at(members[0])).variant) return false;
  KernelInst inst{.kernel = *made,
                  .inputs = std::move(joined.inputs),
                  .outputs = std::move(joined.outputs),
                  .workspace = {},
                  .node = joined.node,
                  .micro_batch = kernel_at(members[0])->micro_batch};
  if (desc.workspace_bytes > 0) {
    const std::string name = "workspace(" + std::string(desc.op->name) + ")";
    inst.workspace =
        builder_.add_slot(name, SlotKind::kWorkspace, desc.workspace_bytes, index_, Tier::kDevice);
    readers_.emplace_back();
    writers_.emplace_back();
  }
  for (const size_t at : members) {
    forget(at);
    gone_[at] = true;
  }
  code_[members[0]] = std::move(inst);
  gone_[members[0]] = false;
  note(members[0]);
  return true;
}

void KernelJoiner::finish() {
  size_t kept = 0;
  for (size_t at = 0; at < code_.size(); ++at)
    if (!gone_[at]) {
      if (kept != at) code_[kept] = std::move(code_[at]);
      ++kept;
    }
  code_.resize(kept);
}

}  // namespace tessera
