#include "engine/program/serving_settings.h"

#include <algorithm>
#include <set>

#include "engine/model/shared_model.h"
#include "graph/base/text.h"
#include "graph/transform/serving_rows.h"

namespace tessera {

namespace {

Status finalize_windows(ServingSettings& settings, const Graph& forward) {
  const int64_t given = settings.window_pages;
  settings.window = paged_window(forward, settings.context);
  settings.has_full_layers = settings.window == 0 || has_full_attention(forward, settings.context);
  if (settings.window == 0) {
    if (given == 0) return {};
    return Status(
        StatusCode::kInvalidArgument,
        format("engine: option 'window_cache_tokens' is given, and no layer of the model has a window "
               "shorter than the context of {}: leave it out",
               settings.context));
  }
  const int64_t usual = settings.rows * window_pages_of_sequence(settings) + window_pages_of_step(settings);
  // A page has at most one window page.
  settings.window_pages = std::min(given > 0 ? given : usual, settings.pages);
  if (given == 0 && settings.window_pages == settings.pages) settings.window_pages = 0;
  const int64_t least = least_window_pages(settings, settings.pages);
  if (given == 0 || settings.window_pages >= least) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("engine: option 'window_cache_tokens' has room for {} tokens, wanted at least {}: a window of "
             "{} and the {} tokens of a step, by pages of {}",
             given * settings.page_size, least * settings.page_size, settings.window,
             serving_step_tokens(settings), settings.page_size));
}

// Snapshots of layers' states; none without prefixes to share.
Status finalize_state(ServingSettings& settings, const Graph& forward) {
  constexpr int64_t kFewest = 4;
  settings.has_state = carries_state(forward);
  if (!settings.has_state && settings.snapshots > 0)
    return Status(StatusCode::kInvalidArgument,
                  format("engine: option 'state_snapshots' is {}, and no layer of the model carries a state: leave it out",
                         settings.snapshots));
  if (settings.draft != nullptr && carries_state(settings.draft->graph()))
    return Status(StatusCode::kUnsupported,
                  "engine: option 'draft_model' names a model whose layers carry a state from token to token, which a draft model "
                  "cannot take back: wanted another, or speculation ngram");
  if (!settings.has_state || !settings.shares_prefixes)
    settings.snapshots = 0;
  else if (settings.snapshots < 0)
    settings.snapshots = std::max(kFewest, settings.rows);
  return {};
}

}  // namespace

int64_t pages_of(const ServingSettings& settings, int64_t tokens) {
  return (tokens + settings.page_size - 1) / settings.page_size;
}

int64_t window_pages_of_sequence(const ServingSettings& settings) {
  return 2 * (pages_of(settings, settings.window) + 1);
}

int64_t window_pages_of_step(const ServingSettings& settings) {
  return pages_of(settings, serving_step_tokens(settings));
}

int64_t least_window_pages(const ServingSettings& settings, int64_t pages) {
  // Pages that these positions span at any offset, and one for a copy.
  const int64_t positions = std::max<int64_t>(settings.window, 2) - 1 + serving_step_tokens(settings);
  return std::min(pages, pages_of(settings, positions - 1) + 2);
}

Result<ServingSettings> finalized(ServingSettings settings, const Graph& forward, int64_t longest) {
  TSR_ASSIGN_OR_RETURN(settings.context,
                       tokens_at_once(settings.context, longest, "engine: option 'context'"));
  settings.longest = longest;
  if (settings.pages == 0) settings.pages = settings.rows * pages_of(settings, settings.context);
  TSR_RETURN_IF_ERROR(finalize_windows(settings, forward));
  TSR_RETURN_IF_ERROR(finalize_state(settings, forward));
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
          .adapter_head = settings.adapter_head,
          .adapter_tables = settings.adapter_tables,
          .hidden = yields_hidden(settings),
          .window_pages = settings.window_pages,
          .spare_rows = spare_rows(settings)};
}

int64_t spare_rows(const ServingSettings& settings) {
  return settings.has_state ? settings.snapshots + (settings.speculates ? settings.rows : 0) : 0;
}

int64_t serving_step_tokens(const ServingSettings& settings) {
  return std::max(settings.step_tokens, settings.rows);
}

std::vector<int64_t> serving_step_sizes(const ServingSettings& settings) {
  if (!settings.step_sizes.empty()) return settings.step_sizes;
  const int64_t largest = serving_step_tokens(settings);
  std::set<int64_t> sizes = {largest, settings.rows};  // rows: a step of one token per sequence
  for (int64_t tokens = 1; tokens < largest; tokens *= 2) sizes.insert(tokens);
  return {sizes.begin(), sizes.end()};
}

std::vector<ServingEntry> serving_entries(const ServingSettings& settings) {
  constexpr int64_t kFew = 16;
  const bool scores_much = settings.scored_tokens > ServingSettings().scored_tokens;
  const int64_t largest = serving_step_tokens(settings);
  std::vector<ServingEntry> entries;
  for (const int64_t tokens : serving_step_sizes(settings)) {
    // All logits of few tokens are cheap.
    const bool has_all = tokens <= kFew && settings.scored_tokens > 0;
    const int64_t few = has_all ? tokens : std::min(tokens, settings.rows);
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
  return std::min(std::max(settings.step_tokens, settings.page_size), settings.rows * settings.page_size);
}

int64_t stored_slots(const ServingSettings& settings) { return settings.page_size; }

}  // namespace tessera
