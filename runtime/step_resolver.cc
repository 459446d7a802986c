#include "runtime/step_resolver.h"

#include <variant>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

tsr_abi_collective described(const CollectiveInst& what, int32_t members) {
  tsr_abi_collective abi{};
  abi.struct_size = sizeof(abi);
  abi.kind = static_cast<int32_t>(what.kind);
  abi.reduce = static_cast<int32_t>(what.reduce);
  abi.dtype = static_cast<int32_t>(what.dtype);
  abi.in_split_first = what.in_split_first;
  abi.root = what.root;
  abi.member_count = members;
  abi.outer = what.outer;
  abi.middle = what.middle;
  abi.inner = what.inner;
  abi.elements = what.elements;
  abi.extents = what.extents.empty() ? nullptr : what.extents.data();
  abi.extents2 = what.extents2.empty() ? nullptr : what.extents2.data();
  return abi;
}

StepResolver::StepResolver(const tsr_backend_api& api, const RankProgram& program,
                           const std::vector<tsr_abi_kernel*>& kernels, const RankMemory& memory)
    : api_(api), program_(program), kernels_(kernels), memory_(memory) {
  size_t pointers = 0;
  for (const EntryPoint& entry : program.entries)
    for (const Instruction& instruction : entry.code)
      if (const auto* kernel = std::get_if<KernelInst>(&instruction))
        pointers += kernel->inputs.size() + kernel->outputs.size();
  pointers_.reserve(pointers);
}

Status StepResolver::resolve(const Instruction& instruction, Step& step) {
  if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
    step.kind = Step::Kind::kKernel;
    step.kernel = kernels_[static_cast<size_t>(kernel->kernel)];
    step.inputs = pointers_.data() + pointers_.size();
    for (const SlotRef& ref : kernel->inputs) pointers_.push_back(memory_.address(ref));
    step.outputs = pointers_.data() + pointers_.size();
    for (const SlotRef& ref : kernel->outputs) pointers_.push_back(memory_.address(ref));
    step.workspace = memory_.address(kernel->workspace);
  } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
    const Group& group = program_.groups[static_cast<size_t>(collective->group)];
    step.kind = Step::Kind::kCollective;
    step.meets = collective->group;
    step.in = memory_.address(collective->in);
    step.out = memory_.address(collective->out);
    step.collective = described(*collective, static_cast<int32_t>(group.ranks.size()));
  } else if (const auto* send = std::get_if<SendInst>(&instruction)) {
    step.kind = Step::Kind::kSend;
    step.meets = send->peer;
    step.row_bytes = send->bytes;
    step.in = memory_.address(send->in);
  } else if (const auto* recv = std::get_if<RecvInst>(&instruction)) {
    step.kind = Step::Kind::kReceive;
    step.meets = recv->peer;
    step.row_bytes = recv->bytes;
    step.out = memory_.address(recv->out);
  } else {
    return resolve_copy(std::get<CopyInst>(instruction), step);
  }
  return {};
}

// The file is read and written from memory that the host can address.
Status StepResolver::resolve_copy(const CopyInst& copy, Step& step) const {
  step.in = memory_.address(copy.in);
  step.out = memory_.address(copy.out);
  step.rows = copy.rows;
  step.row_bytes = copy.row_bytes;
  step.in_stride_bytes = copy.in_stride_bytes;
  step.out_stride_bytes = copy.out_stride_bytes;
  const bool from_file = memory_.in_file(copy.in), to_file = memory_.in_file(copy.out);
  step.kind = from_file ? Step::Kind::kFileRead : to_file ? Step::Kind::kFileWrite : Step::Kind::kCopy;
  if (!from_file && !to_file) return {};
  const SlotRef& other = from_file ? copy.out : copy.in;
  if (from_file && to_file)
    return Status(StatusCode::kUnsupported, "a copy inside the file tier; move it through a host slot");
  if (!has_flag(api_, TSR_BACKEND_BLOCKING) && other.slot >= 0 && memory_.slot(other).tier == Tier::kDevice)
    return Status(
        StatusCode::kUnsupported,
        format("backend '{}' cannot move between device and file; move it through a host slot", api_.name));
  step.file_offset = memory_.offset(from_file ? copy.in : copy.out);
  return {};
}

}  // namespace tessera
