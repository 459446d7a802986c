#include "runtime/rank_executor.h"

#include <chrono>
#include <cstddef>
#include <variant>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_exchange(const Instruction& instruction) {
  return std::holds_alternative<SendInst>(instruction) || std::holds_alternative<RecvInst>(instruction);
}

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                         "broadcast"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

RankExecutor::RankExecutor(const Executable::Impl& executable, int32_t rank, bool trace)
    : api_(executable.api()),
      devices_(executable.devices->impl()),
      program_(executable.program.ranks[static_cast<size_t>(rank)]),
      kernels_(executable.kernels[static_cast<size_t>(rank)]),
      rank_(rank),
      trace_on_(trace),
      device_(devices_.devices[static_cast<size_t>(rank)]) {}

RankExecutor::~RankExecutor() {
  api_.memory_free(device_, 0, arenas_[0], program_.arena_bytes);
  api_.memory_free(device_, 1, arenas_[1], program_.host_arena_bytes);
  if (stream_ != nullptr) api_.stream_destroy(stream_);
}

Result<std::unique_ptr<RankExecutor>> RankExecutor::create(const Executable::Impl& executable, int32_t rank,
                                                           bool trace) {
  std::unique_ptr<RankExecutor> made(new RankExecutor(executable, rank, trace));
  Status status = made->allocate();
  if (status.ok()) status = made->resolve();
  if (!status.ok())
    return status.with_context(format("rank {} ({})", rank, executable.devices->device_name(rank)));
  return made;
}

Status RankExecutor::allocate() {
  TSR_RETURN_IF_ERROR(take_error(api_.stream_create(device_, &stream_)));
  const int64_t bytes[2] = {program_.arena_bytes, program_.host_arena_bytes};
  for (int32_t tier = 0; tier < 2; ++tier) {
    if (tier == 1 && bytes[1] == 0) continue;
    TSR_RETURN_IF_ERROR(
        take_error(api_.memory_alloc(device_, tier, bytes[tier], TSR_ALLOC_GUARDED, &arenas_[tier]))
            .with_context(format("{} arena of {}", tier == 0 ? "device" : "host", bytes_text(bytes[tier]))));
  }
  return {};
}

void* RankExecutor::address(const SlotRef& ref) const {
  if (ref.slot < 0) return nullptr;
  const Slot& slot = program_.slots[static_cast<size_t>(ref.slot)];
  return static_cast<std::byte*>(arenas_[static_cast<size_t>(slot.tier)]) + slot.offset + ref.offset;
}

Status RankExecutor::resolve() {
  for (const Slot& slot : program_.slots)
    if (slot.tier == Tier::kFile)
      return Status(StatusCode::kUnsupported,
                    format("slot '{}' lies in the file tier, which this runtime lacks", slot.name));
  size_t pointers = 0;
  for (const EntryPoint& entry : program_.entries)
    for (const Instruction& instruction : entry.code)
      if (const auto* kernel = std::get_if<KernelInst>(&instruction))
        pointers += kernel->inputs.size() + kernel->outputs.size();
  pointers_.reserve(pointers);  // steps point into it
  steps_.resize(program_.entries.size());
  const bool has_exchange =
      api_.struct_size >= offsetof(tsr_backend_api, comm_group_end) + sizeof(api_.comm_group_end) &&
      api_.comm_group_begin != nullptr && api_.comm_group_end != nullptr;
  for (size_t entry = 0; entry < program_.entries.size(); ++entry) {
    resolve_entry(entry);
    for (const Step& step : steps_[entry])
      if (step.kind == Step::Kind::kExchangeBegin && !has_exchange)
        return failure(static_cast<int32_t>(entry), step,
                       Status(StatusCode::kUnsupported, format("backend '{}' has no exchanges", api_.name)));
  }
  return {};
}

void RankExecutor::resolve_entry(size_t entry) {
  const std::vector<Instruction>& code = program_.entries[entry].code;
  std::vector<Step>& steps = steps_[entry];
  const auto p2p = static_cast<int32_t>(program_.groups.size());
  bool in_exchange = false;
  for (size_t at = 0; at < code.size(); ++at) {
    Step step;
    step.instruction = static_cast<int32_t>(at);
    step.group = p2p;
    // Adjacent sends and receives are one exchange: all are posted before any is waited for.
    if (!in_exchange && is_exchange(code[at]) && at + 1 < code.size() && is_exchange(code[at + 1])) {
      in_exchange = true;
      step.kind = Step::Kind::kExchangeBegin;
      steps.push_back(step);
    }
    if (const auto* kernel = std::get_if<KernelInst>(&code[at])) {
      step.kind = Step::Kind::kKernel;
      step.kernel = kernels_[static_cast<size_t>(kernel->kernel)];
      step.inputs = pointers_.data() + pointers_.size();
      for (const SlotRef& ref : kernel->inputs) pointers_.push_back(address(ref));
      step.outputs = pointers_.data() + pointers_.size();
      for (const SlotRef& ref : kernel->outputs) pointers_.push_back(address(ref));
      step.workspace = address(kernel->workspace);
    } else if (const auto* what = std::get_if<CollectiveInst>(&code[at])) {
      step.kind = Step::Kind::kCollective;
      step.group = what->group;
      step.in = address(what->in);
      step.out = address(what->out);
      tsr_abi_collective& abi = step.collective;
      abi.struct_size = sizeof(abi);
      abi.kind = static_cast<int32_t>(what->kind);
      abi.reduce = static_cast<int32_t>(what->reduce);
      abi.dtype = static_cast<int32_t>(what->dtype);
      abi.in_split_first = what->in_split_first;
      abi.root = what->root;
      abi.member_count = static_cast<int32_t>(program_.groups[static_cast<size_t>(what->group)].ranks.size());
      abi.outer = what->outer;
      abi.middle = what->middle;
      abi.inner = what->inner;
      abi.elements = what->elements;
      abi.extents = what->extents.empty() ? nullptr : what->extents.data();
      abi.extents2 = what->extents2.empty() ? nullptr : what->extents2.data();
    } else if (const auto* send = std::get_if<SendInst>(&code[at])) {
      step.kind = Step::Kind::kSend;
      step.peer = send->peer;
      step.row_bytes = send->bytes;
      step.in = address(send->in);
    } else if (const auto* recv = std::get_if<RecvInst>(&code[at])) {
      step.kind = Step::Kind::kRecv;
      step.peer = recv->peer;
      step.row_bytes = recv->bytes;
      step.out = address(recv->out);
    } else if (const auto* copy = std::get_if<CopyInst>(&code[at])) {
      step.kind = Step::Kind::kCopy;
      step.in = address(copy->in);
      step.out = address(copy->out);
      step.rows = copy->rows;
      step.row_bytes = copy->row_bytes;
      step.in_stride_bytes = copy->in_stride_bytes;
      step.out_stride_bytes = copy->out_stride_bytes;
    }
    steps.push_back(step);
    if (in_exchange && (at + 1 == code.size() || !is_exchange(code[at + 1]))) {
      in_exchange = false;
      step.kind = Step::Kind::kExchangeEnd;
      steps.push_back(step);
    }
  }
}

Status RankExecutor::execute(const Step& step) {
  tsr_abi_comm* comm = comms_.empty() ? nullptr : comms_[static_cast<size_t>(step.group)];
  switch (step.kind) {
    case Step::Kind::kKernel:
      return take_error(api_.kernel_launch(step.kernel, stream_, step.inputs, step.outputs, step.workspace));
    case Step::Kind::kCollective:
      return take_error(api_.comm_collective(comm, stream_, &step.collective, step.in, step.out));
    case Step::Kind::kSend:
      return take_error(api_.comm_send(comm, stream_, step.peer, step.in, step.row_bytes));
    case Step::Kind::kRecv:
      return take_error(api_.comm_recv(comm, stream_, step.peer, step.out, step.row_bytes));
    case Step::Kind::kCopy:
      return take_error(api_.copy(stream_, step.in, step.out, step.rows, step.row_bytes, step.in_stride_bytes,
                                  step.out_stride_bytes));
    case Step::Kind::kExchangeBegin: return take_error(api_.comm_group_begin(comm));
    case Step::Kind::kExchangeEnd: return take_error(api_.comm_group_end(comm, stream_));
  }
  return {};
}

Status RankExecutor::run(int32_t index, const std::atomic<bool>& stop, int64_t origin_ns) {
  for (const Step& step : steps_[static_cast<size_t>(index)]) {
    if (stop.load(std::memory_order_relaxed))
      return failure(index, step,
                     Status(StatusCode::kAborted, "stopped before it, since another rank failed"));
    const int64_t begin_ns = trace_on_ ? now_ns() : 0;
    if (Status status = execute(step); !status.ok()) return failure(index, step, status);
    if (trace_on_) record(index, step, begin_ns - origin_ns, now_ns() - origin_ns);
  }
  return take_error(api_.stream_synchronize(stream_));
}

std::string RankExecutor::label(int32_t entry, const Step& step) const {
  const Instruction& instruction =
      program_.entries[static_cast<size_t>(entry)].code[static_cast<size_t>(step.instruction)];
  if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
    const KernelDesc& desc = program_.kernels[static_cast<size_t>(kernel->kernel)];
    std::string text(desc.op->name);
    if (!kernel->outputs.empty() && kernel->outputs[0].slot >= 0)
      text += " " + program_.slots[static_cast<size_t>(kernel->outputs[0].slot)].name;
    return text;
  }
  if (const auto* what = std::get_if<CollectiveInst>(&instruction))
    return format("{} {}", name_of(what->kind), program_.groups[static_cast<size_t>(what->group)].axis);
  if (step.kind == Step::Kind::kSend) return format("send to {}", step.peer);
  if (step.kind == Step::Kind::kRecv) return format("recv from {}", step.peer);
  return step.kind == Step::Kind::kCopy ? "copy" : "exchange";
}

Status RankExecutor::failure(int32_t entry, const Step& step, const Status& status) const {
  return status.with_context(format(
      "rank {} ({}), entry '{}', instruction {} ({})", rank_, devices_.names[static_cast<size_t>(rank_)],
      program_.entries[static_cast<size_t>(entry)].name, step.instruction, label(entry, step)));
}

void RankExecutor::record(int32_t entry, const Step& step, int64_t begin_ns, int64_t end_ns) {
  TraceEvent event;
  event.rank = rank_;
  event.name = label(entry, step);
  event.category = step.kind == Step::Kind::kKernel ? "kernel"
                   : step.kind == Step::Kind::kCopy ? "copy"
                                                    : "collective";
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  std::visit([&](const auto& instruction) { event.micro_batch = instruction.micro_batch; },
             program_.entries[static_cast<size_t>(entry)].code[static_cast<size_t>(step.instruction)]);
  allocations_in_runs_ += trace_.size() == trace_.capacity();
  trace_.push_back(std::move(event));
}

}  // namespace tessera
