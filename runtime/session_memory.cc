#include "runtime/session_memory.h"

#include <cstddef>
#include <utility>

#include "runtime/host_services.h"
#include "runtime/shared_weights.h"

namespace tessera {

namespace {

// Used memory of a rank's device; -1: unknown to the backend.
Result<int64_t> used_memory(const Executable::Impl& executable, size_t index) {
  const tsr_backend_api& api = executable.api();
  if (api.struct_size < offsetof(tsr_backend_api, memory_info) + sizeof(api.memory_info) ||
      api.memory_info == nullptr)
    return int64_t{-1};
  tsr_abi_memory_info info{};
  info.struct_size = sizeof info;
  TSR_RETURN_IF_ERROR(take_error(api.memory_info(executable.devices->impl().devices[index], &info)));
  return info.used_bytes;
}

// Bytes of a rank's shared weights that are neither the model's own memory nor its file.
int64_t copied_bytes(const SharedWeights& weights, size_t index, const RankProgram& program) {
  int64_t bytes = 0;
  const std::vector<SharedWeight>& all = weights.of_rank(index);
  for (size_t slot = 0; slot < all.size(); ++slot)
    if (all[slot].is_copy) bytes += program.slots[slot].bytes;
  return bytes;
}

}  // namespace

Status SessionMemory::note_used_before() {
  for (size_t at = 0; at < executable_.program.ranks.size(); ++at) {
    TSR_ASSIGN_OR_RETURN(const int64_t used, used_memory(executable_, at));
    used_before_.push_back(used);
  }
  return {};
}

Status SessionMemory::measure() {
  for (const auto& rank : ranks_) {
    std::vector<MemoryProbe>& mine = probes_.emplace_back();
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      if (rank->memory().arena(tier) == nullptr) continue;
      mine.emplace_back(executable_.api(), rank->stream(), tier, rank->memory().arena(tier), rank->program(),
                        tier == Tier::kDevice ? rank->memory().shared_bytes() : 0);
      TSR_RETURN_IF_ERROR(mine.back().poison_all());
    }
  }
  return {};
}

template <class Each>
Status SessionMemory::for_each_probe(std::span<const int32_t> entry, const Each& each) {
  for (size_t at = 0; at < probes_.size(); ++at)
    for (MemoryProbe& probe : probes_[at])
      if (entry[at] >= 0) TSR_RETURN_IF_ERROR(each(probe, static_cast<size_t>(entry[at])));
  return {};
}

Status SessionMemory::before_run(std::span<const int32_t> entry) {
  return for_each_probe(entry, [](MemoryProbe& probe, size_t number) { return probe.before_run(number); });
}

Status SessionMemory::after_run(std::span<const int32_t> entry) {
  return for_each_probe(entry, [](MemoryProbe& probe, size_t number) { return probe.after_run(number); });
}

void SessionMemory::note_written(size_t index, const SlotRef& at, int64_t bytes) {
  if (probes_.empty() || at.slot < 0 || bytes == 0) return;
  const Slot& slot = executable_.program.ranks[index].slots[static_cast<size_t>(at.slot)];
  for (MemoryProbe& probe : probes_[index])
    if (probe.tier() == slot.tier) probe.touched(slot.offset + at.offset + bytes);
}

// Device arenas of all ranks here on this rank's device.
int64_t SessionMemory::arenas_on_device_of(size_t index) const {
  const std::vector<int32_t>& ordinals = executable_.devices->impl().ordinals;
  int64_t bytes = 0;
  for (size_t other = 0; other < executable_.program.ranks.size(); ++other)
    if (ordinals[other] == ordinals[index]) bytes += executable_.program.ranks[other].arena_bytes;
  return bytes;
}

std::vector<MemoryReport> SessionMemory::report(const SharedWeights* weights) const {
  std::vector<MemoryReport> reports;
  for (size_t at = 0; at < ranks_.size(); ++at) {
    const RankProgram& program = executable_.program.ranks[at];
    MemoryReport report;
    report.device = executable_.devices->device_name(executable_.program.rank_of(at));
    report.predicted_bytes = program.arena_bytes;
    report.host_predicted_bytes = program.host_arena_bytes;
    report.file_predicted_bytes = program.file_arena_bytes;
    if (!probes_.empty()) {
      report.host_measured_bytes = 0;
      for (const MemoryProbe& probe : probes_[at])
        (probe.tier() == Tier::kDevice ? report.measured_bytes : report.host_measured_bytes) =
            probe.highest();
    }
    if (const FileArena* file = ranks_[at]->memory().file(); file != nullptr)
      report.file_measured_bytes = file->highest();
    report.max_live_bytes = program.max_live_bytes;
    report.shared_bytes = ranks_[at]->memory().shared_bytes();
    if (weights != nullptr) report.copied_bytes = copied_bytes(*weights, at, program);
    if (used_before_[at] >= 0) {
      report.device_predicted_bytes = used_before_[at] + arenas_on_device_of(at);
      const Result<int64_t> used = used_memory(executable_, at);
      report.device_measured_bytes = used.ok() ? *used : -1;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tessera
