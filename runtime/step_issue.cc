#include "runtime/step_issue.h"

#include <chrono>
#include <cstddef>
#include <variant>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

bool is_on_host(const Step& step) {
  return step.kind == Step::Kind::kFileRead || step.kind == Step::Kind::kFileWrite;
}

}  // namespace

// ---- StepResolver

tsr_abi_collective to_abi_collective(const CollectiveInst& what, int32_t members) {
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
    step.channel = collective->group;
    step.in = memory_.address(collective->in);
    step.out = memory_.address(collective->out);
    step.collective = to_abi_collective(*collective, static_cast<int32_t>(group.ranks.size()));
  } else if (const auto* send = std::get_if<SendInst>(&instruction)) {
    step.kind = Step::Kind::kSend;
    step.channel = send->peer;
    step.row_bytes = send->bytes;
    step.in = memory_.address(send->in);
  } else if (const auto* recv = std::get_if<RecvInst>(&instruction)) {
    step.kind = Step::Kind::kReceive;
    step.channel = recv->peer;
    step.row_bytes = recv->bytes;
    step.out = memory_.address(recv->out);
  } else {
    return resolve_copy(std::get<CopyInst>(instruction), step);
  }
  return {};
}

// Resolves a copy. File I/O needs host-addressable memory.
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

// ---- FusedLaunches

bool can_fuse(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, kernel_fuse) + sizeof(api.kernel_fuse) &&
         api.kernel_fuse != nullptr;
}

FusedLaunches::~FusedLaunches() {
  for (tsr_abi_kernel* kernel : kernels_) api_.kernel_destroy(kernel);
}

Status FusedLaunches::fuse(std::span<Step> steps) {
  if (!can_fuse(api_)) return {};
  for (size_t begin = 0; begin < steps.size();) {
    size_t end = begin;
    while (end < steps.size() && steps[end].kind == Step::Kind::kKernel &&
           (end == begin || steps[end].wait_begin == steps[end].wait_end))
      ++end;
    TSR_RETURN_IF_ERROR(fuse_run(steps.subspan(begin, end - begin)));
    begin = end > begin ? end : begin + 1;
  }
  return {};
}

Status FusedLaunches::fuse_run(std::span<Step> kernels) {
  std::vector<tsr_abi_launch> launches;
  for (const Step& step : kernels)
    launches.push_back({step.kernel, step.inputs, step.outputs, step.workspace});
  for (size_t at = 0; at + 1 < kernels.size();) {
    int32_t taken = 0;
    tsr_abi_kernel* fused = nullptr;
    TSR_RETURN_IF_ERROR(take_error(api_.kernel_fuse(
        device_, launches.data() + at, static_cast<int32_t>(kernels.size() - at), &taken, &fused)));
    if (fused != nullptr) kernels_.push_back(fused);
    if (fused == nullptr || taken < 1) {
      ++at;
      continue;
    }
    const auto members = static_cast<size_t>(taken);
    if (members > kernels.size() - at)
      return Status(StatusCode::kInternal,
                    format("backend '{}' fused {} of {} launches", api_.name, taken, kernels.size() - at));
    Step& first = kernels[at];
    first.kernel = fused;
    first.inputs = nullptr;
    first.outputs = nullptr;
    first.workspace = nullptr;
    for (size_t i = 1; i < members; ++i) kernels[at + i].kind = Step::Kind::kFused;
    at += members;
  }
  return {};
}

// ---- DeviceTimers

int64_t host_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool DeviceTimers::is_supported(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, event_elapsed) + sizeof(api.event_elapsed) &&
         api.timed_event_create != nullptr && api.event_elapsed != nullptr;
}

DeviceTimers::~DeviceTimers() {
  for (tsr_abi_event* event : events_) api_.event_destroy(event);
}

Status DeviceTimers::add(Step& step) {
  if (is_on_host(step) || step.kind == Step::Kind::kFused) return {};
  for (tsr_abi_event** event : {&step.begins, &step.ends}) {
    TSR_RETURN_IF_ERROR(take_error(api_.timed_event_create(device_, event)));
    events_.push_back(*event);
  }
  return {};
}

Status DeviceTimers::begin(tsr_abi_stream* stream) {
  if (run_began_ == nullptr) {
    TSR_RETURN_IF_ERROR(take_error(api_.timed_event_create(device_, &run_began_)));
    events_.push_back(run_began_);
  }
  TSR_RETURN_IF_ERROR(take_error(api_.event_record(run_began_, stream)));
  run_began_ns_ = host_now_ns();
  return {};
}

// A fused launch is recorded for its first instruction; the others end with it.
Status DeviceTimers::read(int32_t entry, const std::vector<std::pair<RankStream*, int32_t>>& steps,
                          int64_t origin_ns) {
  for (const auto& [stream, position] : steps) {
    const Step& step = stream->steps[static_cast<size_t>(entry)][static_cast<size_t>(position)];
    if (is_on_host(step)) continue;
    RankStream::Record record{entry, step.instruction, 0, 0};
    if (step.kind == Step::Kind::kFused) {
      record.begin_ns = record.end_ns = stream->records.back().end_ns;
    } else {
      TSR_RETURN_IF_ERROR(take_error(api_.event_elapsed(run_began_, step.begins, &record.begin_ns)));
      TSR_RETURN_IF_ERROR(take_error(api_.event_elapsed(run_began_, step.ends, &record.end_ns)));
      record.begin_ns += run_began_ns_ - origin_ns;
      record.end_ns += run_began_ns_ - origin_ns;
    }
    stream->add_record(record);
  }
  return {};
}

}  // namespace tessera
