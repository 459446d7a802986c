#include "runtime/memory_probe.h"

#include <algorithm>

#include "runtime/host_services.h"

namespace tessera {

namespace {
constexpr int32_t kPatternA = 0xff, kPatternB = 0x7f;
constexpr int64_t kWindowBytes = int64_t{1} << 20;

bool is_persistent(SlotKind kind) { return kind != SlotKind::kTransient && kind != SlotKind::kWorkspace; }
}  // namespace

MemoryProbe::MemoryProbe(const tsr_backend_api& api, tsr_abi_stream* stream, Tier tier, void* arena,
                         const RankProgram& program, int64_t shared_bytes)
    : api_(api),
      stream_(stream),
      tier_(tier),
      arena_(static_cast<std::byte*>(arena)),
      begin_(shared_bytes),
      arena_bytes_(tier == Tier::kDevice ? program.arena_bytes : program.host_arena_bytes),
      runs_(program.entries.size()),
      window_(static_cast<size_t>(kWindowBytes)),
      highest_(shared_bytes) {
  lent_.resize(program.entries.size());
  const bool lends = tier == Tier::kDevice && (api.flags & TSR_BACKEND_BLOCKING) == 0;
  for (size_t entry = 0; entry < lent_.size() && lends; ++entry)
    for (const Instruction& instruction : program.entries[entry].code)
      if (const auto* kernel = std::get_if<KernelInst>(&instruction);
          kernel != nullptr && kernel->workspace.slot >= 0) {
        const Slot& slot = program.slots[static_cast<size_t>(kernel->workspace.slot)];
        lent_[entry] = std::max(lent_[entry], slot.offset + slot.bytes);
      }
  std::vector<Interval> covered;
  for (const Slot& slot : program.slots)
    if (slot.tier == tier && slot.bytes > 0 && slot.offset >= begin_ && is_persistent(slot.kind))
      covered.push_back({slot.offset, slot.offset + slot.bytes});
  std::ranges::sort(covered, {}, &Interval::begin);
  for (const Interval& interval : covered) {
    if (!persistent_.empty() && interval.begin <= persistent_.back().end)
      persistent_.back().end = std::max(persistent_.back().end, interval.end);
    else
      persistent_.push_back(interval);
  }
  int64_t at = begin_;
  for (const Interval& interval : persistent_) {
    if (at < interval.begin) transient_.push_back({at, interval.begin});
    at = interval.end;
  }
  if (at < arena_bytes_) transient_.push_back({at, arena_bytes_});
}

Status MemoryProbe::poison_all() { return fill({{begin_, arena_bytes_}}, kPatternA); }

Status MemoryProbe::before_run(size_t entry) {
  if (runs_[entry] >= 2) return {};
  return fill(transient_, runs_[entry] == 0 ? kPatternA : kPatternB);
}

Status MemoryProbe::after_run(size_t entry) {
  if (runs_[entry] >= 2) return {};
  const bool first = runs_[entry]++ == 0;
  highest_ = std::max(highest_, lent_[entry]);
  if (first) TSR_RETURN_IF_ERROR(scan(persistent_, kPatternA));
  return scan(transient_, first ? kPatternA : kPatternB);
}

// Fills and waits: a run begins on several streams, which do not wait for this one.
Status MemoryProbe::fill(const std::vector<Interval>& intervals, int32_t byte) {
  for (const Interval& interval : intervals)
    TSR_RETURN_IF_ERROR(
        take_error(api_.fill(stream_, arena_ + interval.begin, byte, interval.end - interval.begin)));
  return take_error(api_.stream_synchronize(stream_));
}

// Scans downwards to the highest byte known to be touched.
Status MemoryProbe::scan(const std::vector<Interval>& intervals, int32_t byte) {
  const auto poison = static_cast<std::byte>(byte);
  for (auto interval = intervals.rbegin(); interval != intervals.rend(); ++interval) {
    for (int64_t end = interval->end; end > std::max(interval->begin, highest_);) {
      const int64_t begin = std::max(interval->begin, end - kWindowBytes);
      const int64_t count = end - begin;
      TSR_RETURN_IF_ERROR(
          take_error(api_.copy(stream_, arena_ + begin, window_.data(), 1, count, count, count)));
      TSR_RETURN_IF_ERROR(take_error(api_.stream_synchronize(stream_)));
      for (int64_t at = count - 1; at >= 0; --at) {
        if (window_[static_cast<size_t>(at)] == poison) continue;
        highest_ = std::max(highest_, begin + at + 1);
        return {};
      }
      end = begin;
    }
  }
  return {};
}

}  // namespace tessera
