#include "engine/serving/pages/fitted_pages.h"

#include <algorithm>
#include <set>
#include <string>

#include "graph/transform/row_adapters.h"

namespace tessera {

namespace {

struct PageBytes {
  int64_t full = 0, window = 0;  // bytes of all pages on a device
};

PageBytes page_bytes(const RankProgram& rank, const std::set<std::string>& windows) {
  PageBytes bytes;
  for (const Slot& slot : rank.slots) {
    if (slot.kind != SlotKind::kState || is_adapter_state(slot.name)) continue;
    (windows.contains(slot.name) ? bytes.window : bytes.full) += slot.bytes;
  }
  return bytes;
}

// PageChoice: the number of pages of one pool is chosen, that of the other pool follows.
class PageChoice {
 public:
  PageChoice(const ServingSettings& settings, bool chooses_windows)
      : all_(settings.pages), all_windows_(settings.window_pages), chooses_windows_(chooses_windows) {
    chooses_full_ = settings.has_full_layers || !has_windows();
    most_ = chooses_full_ ? all_ : all_windows_;
    const int64_t columns = table_columns(serving_options(settings));
    least_ = chooses_full_ ? columns : chooses_windows ? least_window_pages(settings, all_) : all_windows_;
  }

  int64_t least() const { return least_; }
  int64_t most() const { return most_; }
  void set(ServingSettings& settings, int64_t pages) const {
    settings.pages = chooses_full_ ? pages : all_;
    if (!has_windows()) return;
    if (!chooses_full_) {
      settings.window_pages = pages;
    } else if (chooses_windows_) {
      const int64_t share = (all_windows_ * pages + all_ - 1) / all_;
      settings.window_pages = std::clamp(share, least_window_pages(settings, pages), pages);
    } else {
      settings.window_pages = std::min(all_windows_, pages);
    }
  }

 private:
  bool has_windows() const { return all_windows_ > 0; }

  const int64_t all_, all_windows_;
  const bool chooses_windows_;
  bool chooses_full_;
  int64_t most_, least_;
};

}  // namespace

Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings, bool chooses_windows,
                                        const std::shared_ptr<DeviceSet>& devices, const TrainedPlan* along) {
  const auto is_too_much = [](const Result<CompiledProgram>& compiled) {
    return !compiled.ok() && compiled.status().code() == StatusCode::kOutOfMemory;
  };
  const PageChoice choice(settings, chooses_windows);
  Result<CompiledProgram> compiled = compile_serving(forward, settings, devices, along);
  if (!is_too_much(compiled)) return compiled;
  choice.set(settings, choice.least());
  compiled = compile_serving(forward, settings, devices, along);
  if (!compiled.ok()) return compiled;
  const ServingSettings least = settings;
  const std::set<std::string> windows = window_states(*compiled->record->entries.front().graph);
  const auto fits = [&](int64_t pages) {
    ServingSettings larger = least;
    choice.set(larger, pages);
    return std::ranges::all_of(compiled->program.ranks, [&](const RankProgram& rank) {
      const PageBytes bytes = page_bytes(rank, windows);
      const int64_t more = bytes.full / least.pages * (larger.pages - least.pages) +
                           (least.window_pages > 0 ? bytes.window / least.window_pages *
                                                         (larger.window_pages - least.window_pages)
                                                   : 0);
      return rank.arena_bytes + more <= settings.compute.memory_limit;
    });
  };
  int64_t pages = choice.least();
  for (int64_t too_many = choice.most(); pages + 1 < too_many;) {
    const int64_t middle = pages + (too_many - pages) / 2;
    (fits(middle) ? pages : too_many) = middle;
  }
  // Alignment, or a plan that changes with the pages, may need fewer pages.
  for (int64_t less = 1; pages > choice.least(); pages -= less, less *= 2) {
    choice.set(settings, pages);
    Result<CompiledProgram> larger = compile_serving(forward, settings, devices, along);
    if (!is_too_much(larger)) return larger;
  }
  settings = least;
  return compiled;
}

}  // namespace tessera
