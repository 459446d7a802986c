#include "parallel/planner/explanation_parts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

std::string percent(double share) {
  const auto tenths = static_cast<int64_t>(share * 1000 + 0.5);
  return format("{}.{} %", tenths / 10, tenths % 10);
}

std::string short_time_text(double seconds) {
  if (seconds >= 1) return format("{} s", std::round(seconds * 1000) / 1000);
  if (seconds >= 1e-3) return format("{} ms", std::round(seconds * 1e6) / 1000);
  return format("{} us", std::round(seconds * 1e7) / 10);
}

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string_view tier_name(Tier tier) {
  static constexpr std::string_view kTiers[] = {"device", "host", "file"};
  return kTiers[static_cast<size_t>(tier)];
}

std::string stage_name(int64_t stage, int64_t stages) {
  return stages == 1 ? std::string("each device") : format("stage {}", stage);
}

size_t set_device_bytes(Explanation& it, std::vector<int64_t> by_device, int64_t limit) {
  it.bytes_by_device = std::move(by_device);
  it.memory_limit = limit;
  const auto fullest = std::ranges::max_element(it.bytes_by_device);
  it.memory_bytes = *fullest;
  return static_cast<size_t>(fullest - it.bytes_by_device.begin());
}

RunnerUp& add_runner_up(Explanation& it, std::string strategy, double step_s, int64_t bytes, std::string why) {
  RunnerUp& other = it.runners_up.emplace_back();
  other.strategy = std::move(strategy);
  other.step_s = step_s;
  if (step_s > 0) other.loses_s = step_s - it.step_s;
  other.bytes = bytes;
  if (it.memory_limit > 0) other.over_bytes = std::max<int64_t>(0, bytes - it.memory_limit);
  other.why = std::move(why);
  return other;
}

void add_memory(Explanation& it, std::string_view cause, int64_t bytes, Tier tier) {
  if (bytes != 0) it.memory.push_back({std::string(cause), bytes, tier});
}

void finish_peak(Explanation& it) {
  std::vector<PeakBuffer>& largest = it.peak.largest;
  if (largest.empty())
    for (const MemoryShare& share : it.memory)
      if (share.tier == Tier::kDevice) largest.push_back({share.cause, share.cause, share.bytes});
  std::ranges::stable_sort(largest, std::greater(), &PeakBuffer::bytes);
  constexpr size_t kMost = 16;
  if (largest.size() > kMost) largest.resize(kMost);
}

void add_reasons(Explanation& it) {
  if (it.step_s <= 0) return;
  const RunnerUp* faster = nullptr;
  for (const RunnerUp& other : it.runners_up)
    if (other.over_bytes > 0 && other.step_s > 0 && other.loses_s < 0 &&
        (faster == nullptr || other.step_s < faster->step_s))
      faster = &other;
  if (faster != nullptr)
    it.reasons.push_back(format("The memory limit costs {} of the step: '{}' would be faster and lacks {}",
                                percent(-faster->loses_s / it.step_s), faster->strategy,
                                bytes_text(faster->over_bytes)));
  const TimeShare* loss = nullptr;
  for (const TimeShare& share : it.time)
    if (share.cause != "compute" && share.cause != "update" && share.seconds > 0.02 * it.step_s &&
        (loss == nullptr || share.seconds > loss->seconds))
      loss = &share;
  if (loss != nullptr)
    it.reasons.push_back(format("Beside computation, most time goes to {}{}: {} of the step", loss->cause,
                                loss->axis.empty() ? std::string() : " over " + loss->axis,
                                percent(loss->seconds / it.step_s)));
}

int32_t TimelineNumbers::number(std::map<std::string, int32_t>& known, std::vector<std::string>& list,
                                const std::string& text) {
  const auto [at, is_new] = known.emplace(text, static_cast<int32_t>(list.size()));
  if (is_new) list.push_back(text);
  return at->second;
}

}  // namespace tessera
