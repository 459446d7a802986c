#include "graph/analysis/instructions.h"

#include <iterator>
#include <numeric>

#include "graph/base/text.h"

namespace tessera {

namespace {

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                         "broadcast"};
  return static_cast<size_t>(kind) < std::size(kNames) ? kNames[static_cast<size_t>(kind)] : "collective";
}

std::string_view name_of(Tier tier) {
  constexpr std::string_view kNames[] = {"device", "host", "file"};
  return static_cast<size_t>(tier) < std::size(kNames) ? kNames[static_cast<size_t>(tier)] : "?";
}

const Slot& slot_of(const RankProgram& rank, const SlotRef& ref) {
  return rank.slots[static_cast<size_t>(ref.slot)];
}

int64_t sum(const std::vector<int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{0});
}

struct InOut {
  int64_t in, out;
};
InOut collective_elements(const Group& group, const CollectiveInst& inst) {
  const auto me = static_cast<size_t>(group.position);
  switch (inst.kind) {
    case CollectiveKind::kAllGather: return {inst.outer * inst.extents[me] * inst.inner, inst.elements};
    case CollectiveKind::kReduceScatter: return {inst.elements, inst.outer * inst.extents[me] * inst.inner};
    case CollectiveKind::kAllToAll: {
      const int64_t rest = inst.outer * inst.middle * inst.inner;
      return {rest * inst.extents[me] * sum(inst.extents2), rest * sum(inst.extents) * inst.extents2[me]};
    }
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast: break;
  }
  return {inst.elements, inst.elements};
}

struct Accesses {
  const RankProgram& rank;
  std::vector<ByteAccess>& out;

  void add(const SlotRef& ref, int64_t bytes, bool is_write) {
    if (ref.slot < 0 || bytes <= 0) return;
    const Slot& slot = slot_of(rank, ref);
    const int64_t begin = slot.offset + ref.offset;
    out.push_back({slot.tier, begin, begin + bytes, is_write});
  }
  void operator()(const KernelInst& inst) {
    const KernelDesc& kernel = rank.kernels[static_cast<size_t>(inst.kernel)];
    for (size_t i = 0; i < inst.inputs.size(); ++i) add(inst.inputs[i], bytes(kernel.inputs[i]), false);
    for (size_t i = 0; i < inst.outputs.size(); ++i) add(inst.outputs[i], bytes(kernel.outputs[i]), true);
    add(inst.workspace, kernel.workspace_bytes, true);
  }
  void operator()(const CollectiveInst& inst) {
    const InOut elements = collective_elements(rank.groups[static_cast<size_t>(inst.group)], inst);
    add(inst.in, dtype_bytes(inst.dtype, elements.in), false);
    add(inst.out, dtype_bytes(inst.dtype, elements.out), true);
  }
  void operator()(const SendInst& inst) { add(inst.in, inst.bytes, false); }
  void operator()(const RecvInst& inst) { add(inst.out, inst.bytes, true); }
  void operator()(const CopyInst& inst) {
    if (inst.rows <= 0) return;
    add(inst.in, (inst.rows - 1) * inst.in_stride_bytes + inst.row_bytes, false);
    add(inst.out, (inst.rows - 1) * inst.out_stride_bytes + inst.row_bytes, true);
  }
};

}  // namespace

std::string instruction_label(const RankProgram& rank, const Instruction& instruction) {
  if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
    const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
    std::string text(desc.op->name);
    if (!kernel->outputs.empty() && kernel->outputs[0].slot >= 0)
      text += " " + slot_of(rank, kernel->outputs[0]).name;
    return text;
  }
  if (const auto* what = std::get_if<CollectiveInst>(&instruction))
    return format("{} {}", name_of(what->kind), rank.groups[static_cast<size_t>(what->group)].axis);
  if (const auto* send = std::get_if<SendInst>(&instruction)) return format("send to {}", send->peer);
  if (const auto* recv = std::get_if<RecvInst>(&instruction)) return format("recv from {}", recv->peer);
  const auto& copy = std::get<CopyInst>(instruction);
  const Slot& out = slot_of(rank, copy.out);
  if (copy.in.slot < 0) return format("fill {}", out.name);
  const Slot& in = slot_of(rank, copy.in);
  if (in.tier == out.tier) return format("copy {}", out.name);
  return format("copy {} -> {} {}", name_of(in.tier), name_of(out.tier), out.name);
}

std::string_view instruction_category(const Instruction& instruction) {
  constexpr std::string_view kNames[] = {"kernel", "collective", "p2p", "p2p", "copy"};
  return kNames[instruction.index()];
}

int64_t instruction_bytes(const RankProgram& rank, const Instruction& instruction) {
  if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
    const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
    int64_t total = 0;
    for (const TensorType& type : desc.inputs) total += bytes(type);
    for (const TensorType& type : desc.outputs) total += bytes(type);
    return total;
  }
  if (const auto* what = std::get_if<CollectiveInst>(&instruction))
    return dtype_bytes(what->dtype, what->elements);
  if (const auto* send = std::get_if<SendInst>(&instruction)) return send->bytes;
  if (const auto* recv = std::get_if<RecvInst>(&instruction)) return recv->bytes;
  const auto& copy = std::get<CopyInst>(instruction);
  return copy.rows * copy.row_bytes;
}

int32_t micro_batch_of(const Instruction& instruction) {
  return std::visit([](const auto& inst) { return inst.micro_batch; }, instruction);
}

TraceEvent traced(const RankProgram& rank, const EntryPoint& entry, const Instruction& instruction) {
  TraceEvent event;
  event.name = instruction_label(rank, instruction);
  event.category = instruction_category(instruction);
  event.micro_batch = micro_batch_of(instruction);
  event.bytes = instruction_bytes(rank, instruction);
  event.entry = entry.name;
  const auto* kernel = std::get_if<KernelInst>(&instruction);
  if (kernel == nullptr) return event;
  const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
  const OpCost cost = desc.op->cost({desc.attrs, desc.inputs, desc.outputs, desc.factors});
  event.variant = desc.variant;
  for (const TensorType& type : desc.inputs)
    event.operands += (event.operands.empty() ? "" : " ") + to_text(type);
  event.flops = cost.flops;
  event.memory_bytes = cost.bytes_read + cost.bytes_written;
  return event;
}

std::string waiting_text(const RankProgram& rank, int32_t rank_index, const EntryPoint& entry,
                         int32_t instruction) {
  const Instruction& inst = entry.code[static_cast<size_t>(instruction)];
  std::string text = format("rank {} at instruction {} ({}, micro-batch {})", rank_index, instruction,
                            instruction_label(rank, inst), micro_batch_of(inst));
  if (const auto* what = std::get_if<CollectiveInst>(&inst)) {
    std::vector<std::string> others;
    for (const int32_t member : rank.groups[static_cast<size_t>(what->group)].ranks)
      if (member != rank_index) others.push_back(to_text(member));
    text += format(" with ranks {}", join(others, ", "));
  }
  return text;
}

void find_accesses(const RankProgram& rank, const Instruction& instruction, std::vector<ByteAccess>& out) {
  out.clear();
  std::visit(Accesses{rank, out}, instruction);
}

}  // namespace tessera
