#include "capi/engine/serving/fitted_pages.h"

#include <algorithm>
#include <string_view>

namespace tessera {

namespace {

// Bytes of keys and values of all pages on a device.
int64_t page_bytes(const RankProgram& rank) {
  int64_t bytes = 0;
  for (const Slot& slot : rank.slots)
    if (slot.kind == SlotKind::kState && (slot.name.ends_with(".k_pages") || slot.name.ends_with(".v_pages")))
      bytes += slot.bytes;
  return bytes;
}

}  // namespace

Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices, const TrainedPlan* along) {
  const auto is_too_much = [](const Result<CompiledProgram>& compiled) {
    return !compiled.ok() && compiled.status().code() == StatusCode::kOutOfMemory;
  };
  const int64_t least = table_columns(serving_options(settings)), most = settings.pages;
  Result<CompiledProgram> compiled = compile_serving(forward, settings, devices, along);
  if (!is_too_much(compiled)) return compiled;
  settings.pages = least;
  compiled = compile_serving(forward, settings, devices, along);
  if (!compiled.ok()) return compiled;
  int64_t pages = most - 1;
  for (size_t rank = 0; rank < compiled->program.ranks.size(); ++rank) {
    const int64_t all = page_bytes(compiled->program.ranks[rank]);
    if (all == 0) continue;
    const int64_t left = settings.compute.memory_limit - compiled->program.ranks[rank].arena_bytes;
    pages = std::min(pages, least + std::max<int64_t>(0, left) / (all / least));
  }
  // Where slots are aligned, or the plan changes with the pages, some fewer fit.
  for (int64_t less = 1; pages > least; pages -= less, less *= 2) {
    settings.pages = pages;
    Result<CompiledProgram> larger = compile_serving(forward, settings, devices, along);
    if (!is_too_much(larger)) return larger;
  }
  settings.pages = least;
  return compiled;
}

}  // namespace tessera
