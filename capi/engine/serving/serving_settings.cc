#include "capi/engine/serving/serving_settings.h"

#include <algorithm>
#include <set>

#include "graph/base/text.h"

namespace tessera {

Result<ServingSettings> finalized(ServingSettings settings, int64_t longest) {
  TSR_ASSIGN_OR_RETURN(settings.context,
                       tokens_at_once(settings.context, longest, "engine: option 'context'"));
  const int64_t columns = (settings.context + settings.page_size - 1) / settings.page_size;
  if (settings.pages == 0) settings.pages = settings.rows * columns;
  return settings;
}

ServingOptions serving_options(const ServingSettings& settings) {
  return {.pages = settings.pages,
          .page_size = settings.page_size,
          .rows = settings.rows,
          .context = settings.context,
          .cache = settings.cache,
          .adapter_slots = settings.adapters,
          .adapter_rank = settings.adapter_rank,
          .adapter_type = settings.adapter_type,
          .hidden = settings.hidden};
}

int64_t serving_step_tokens(const ServingSettings& settings) {
  return std::max(settings.step_tokens, settings.rows);
}

std::vector<int64_t> serving_step_sizes(const ServingSettings& settings) {
  const int64_t largest = serving_step_tokens(settings);
  std::set<int64_t> sizes = {largest, settings.rows};  // the last: a step of all sequences
  for (int64_t tokens = 1; tokens < largest; tokens *= 2) sizes.insert(tokens);
  return {sizes.begin(), sizes.end()};
}

std::vector<ServingEntry> serving_entries(const ServingSettings& settings) {
  constexpr int64_t kFew = 16;
  const bool scores_much = settings.scored_tokens > ServingSettings().scored_tokens;
  const int64_t largest = serving_step_tokens(settings);
  std::vector<ServingEntry> entries;
  for (const int64_t tokens : serving_step_sizes(settings)) {
    // Of few tokens all logits cost little.
    const int64_t few = tokens <= kFew ? tokens : std::min(tokens, settings.rows);
    const int64_t many = std::min(tokens, settings.rows + settings.scored_tokens);
    entries.push_back({format("serve.{}", tokens), tokens, few});
    if (many > few && (scores_much || tokens == largest))
      entries.push_back({format("serve.{}.{}", tokens, many), tokens, many});
  }
  return entries;
}

const ServingEntry& serving_entry(std::span<const ServingEntry> entries, int64_t tokens, int64_t wanted) {
  return *std::ranges::find_if(
      entries, [&](const ServingEntry& entry) { return entry.tokens >= tokens && entry.wanted >= wanted; });
}

int64_t copied_slots(const ServingSettings& settings) {
  return std::max(settings.step_tokens, settings.page_size);
}

int64_t stored_slots(const ServingSettings& settings) { return settings.page_size; }

}  // namespace tessera
