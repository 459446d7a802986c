// Parts that explanations of lowered, composed and generation plans have in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/explanation.h"

namespace tessera {

// Sizes of drawings, and whether there are any.
struct ExplanationDrawings {
  bool wanted = true;  // the timeline and the memory curve
  size_t most_spans = 60'000;
  size_t most_points = 2'000;
};

std::string percent(double share);            // 0.123 -> "12.3 %"
std::string short_time_text(double seconds);  // "1.234 s", "2.5 ms", "3.1 us"
int64_t nanoseconds(double seconds);
std::string_view tier_name(Tier tier);
std::string stage_name(int64_t stage, int64_t stages);  // "stage 3"; without a pipeline "each device"

// Bytes of every device and the limit of each; returns the index of the fullest.
size_t set_device_bytes(Explanation& explanation, std::vector<int64_t> by_device, int64_t limit);
// Another plan: what it loses to the explained one, and lacks under its limit. `step_s` 0: never priced.
RunnerUp& add_runner_up(Explanation& explanation, std::string strategy, double step_s, int64_t bytes, std::string why = {});
// Adds bytes of a device to its memory, unless 0.
void add_memory(Explanation& explanation, std::string_view cause, int64_t bytes, Tier tier = Tier::kDevice);
// The largest buffers of the peak, largest first, at most 16; without a list of buffers, the memory's shares.
void finish_peak(Explanation& explanation);
// The cost of the memory limit, if a faster plan would not fit; the largest loss.
void add_reasons(Explanation& explanation);

// TimelineNumbers: numbers of the causes and labels that a timeline lists.
class TimelineNumbers {
 public:
  explicit TimelineNumbers(Timeline& timeline) : timeline_(timeline) {}
  int32_t cause(const std::string& text) { return number(causes_, timeline_.causes, text); }
  int32_t label(const std::string& text) { return number(labels_, timeline_.labels, text); }

 private:
  static int32_t number(std::map<std::string, int32_t>& known, std::vector<std::string>& list, const std::string& text);

  Timeline& timeline_;
  std::map<std::string, int32_t> causes_, labels_;
};

}  // namespace tessera
