#include "engine/serving/texts/best_of.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

namespace tessera {

namespace {

double mean_log_probability(const std::vector<ServingEvent>& text) {
  const ServedUsage& usage = *text.back().usage;
  const double mean = usage.log_probability / static_cast<double>(usage.tokens);  // NaN for an empty text
  return std::isnan(mean) ? -std::numeric_limits<double>::infinity() : mean;
}

}  // namespace

void BestOf::watch(int64_t request, int64_t made, int64_t given) {
  held_[request] = {given, made, std::vector<std::vector<ServingEvent>>(static_cast<size_t>(made))};
}

std::vector<ServingEvent> BestOf::filter(std::vector<ServingEvent> events) {
  if (held_.empty()) return events;
  std::vector<ServingEvent> out;
  for (ServingEvent& event : events) {
    const auto found = held_.find(event.request);
    // Prompt log probabilities and requests for logits pass at once.
    if (found == held_.end() || event.kind == ServingEvent::Kind::kPrompt ||
        event.kind == ServingEvent::Kind::kLogits) {
      out.push_back(std::move(event));
      continue;
    }
    Held& held = found->second;
    const bool is_end = event.kind == ServingEvent::Kind::kEnd;
    held.texts[static_cast<size_t>(event.index)].push_back(std::move(event));
    if (!is_end || --held.missing > 0) continue;
    std::ranges::stable_sort(held.texts, std::greater(), mean_log_probability);
    for (int64_t index = 0; index < held.given; ++index)
      for (ServingEvent& it : held.texts[static_cast<size_t>(index)]) {
        it.index = static_cast<int32_t>(index);
        out.push_back(std::move(it));
      }
    held_.erase(found);
  }
  return out;
}

}  // namespace tessera
