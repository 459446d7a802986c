#include "engine/serving/pages/fitted_pages.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <span>
#include <string>

#include "graph/transform/row_adapters.h"
#include "runtime/transport.h"

namespace tessera {

namespace {

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

ChosenPages chosen_pages(const ServingSettings& given) {
  return {given.pages == 0 && given.compute.memory_limit > 0, given.window_pages == 0};
}

std::vector<PageBytes> bytes_of_pages(const CompiledProgram& compiled, const ServingSettings& settings) {
  const Graph& graph = *compiled.record->entries.front().graph;
  const std::set<std::string> windows = window_states(graph), rows = row_states(graph);
  std::vector<PageBytes> pages;
  for (const RankProgram& rank : compiled.program.ranks) {
    PageBytes& bytes = pages.emplace_back();
    for (const Slot& slot : rank.slots) {
      if (slot.kind != SlotKind::kState || is_adapter_state(slot.name) || rows.contains(slot.name)) continue;
      (windows.contains(slot.name) ? bytes.window : bytes.full) += slot.bytes;
    }
    bytes.full /= settings.pages;
    if (settings.window_pages > 0) bytes.window /= settings.window_pages;
  }
  return pages;
}

namespace {

struct FittedRank {
  PageBytes page;
  int64_t arena_bytes = 0;
};

// Of the ranks of all processes, so that these choose the same.
Result<std::vector<FittedRank>> ranks_of_all(const CompiledProgram& compiled, const ServingSettings& settings, const DeviceSet& devices) {
  std::vector<FittedRank> mine;
  for (const PageBytes& page : bytes_of_pages(compiled, settings))
    mine.push_back({page, compiled.program.ranks[mine.size()].arena_bytes});
  Channel* const channel = devices.channel();
  if (channel == nullptr) return mine;
  std::vector<FittedRank> all;
  for (int32_t process = 0; process < channel->transport().processes(); ++process) {
    auto count = std::ssize(mine);
    TSR_RETURN_IF_ERROR(channel->broadcast(process, std::as_writable_bytes(std::span(&count, 1))));
    std::vector<FittedRank> theirs = process == channel->transport().process() ? mine : std::vector<FittedRank>(static_cast<size_t>(count));
    TSR_RETURN_IF_ERROR(channel->broadcast(process, std::as_writable_bytes(std::span(theirs))));
    std::ranges::copy(theirs, std::back_inserter(all));
  }
  return all;
}

}  // namespace

Result<CompiledProgram> compile_smallest(const Graph& forward, ServingSettings& settings, ChosenPages chosen,
                                         const std::shared_ptr<DeviceSet>& devices) {
  const PageChoice choice(settings, chosen.windows);
  choice.set(settings, choice.least());
  ServingSettings unlimited = settings;
  unlimited.compute.memory_limit = int64_t{1} << 60;
  return compile_serving(forward, unlimited, devices);
}

Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings, ChosenPages chosen,
                                        const std::shared_ptr<DeviceSet>& devices, const TrainedPlan* along) {
  const auto is_too_much = [](const Result<CompiledProgram>& compiled) {
    return !compiled.ok() && compiled.status().code() == StatusCode::kOutOfMemory;
  };
  const PageChoice choice(settings, chosen.windows);
  Result<CompiledProgram> compiled = compile_serving(forward, settings, devices, along);
  if (!chosen.full || !is_too_much(compiled)) return compiled;
  choice.set(settings, choice.least());
  compiled = compile_serving(forward, settings, devices, along);
  if (!compiled.ok()) return compiled;
  const ServingSettings least = settings;
  TSR_ASSIGN_OR_RETURN(const std::vector<FittedRank> ranks, ranks_of_all(*compiled, least, *devices));
  const auto fits = [&](int64_t pages) {
    ServingSettings larger = least;
    choice.set(larger, pages);
    return std::ranges::all_of(ranks, [&](const FittedRank& rank) {
      const int64_t more = rank.page.full * (larger.pages - least.pages) + rank.page.window * (larger.window_pages - least.window_pages);
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
