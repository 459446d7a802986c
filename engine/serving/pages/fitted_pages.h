// The number of pages of keys and values that fits the memory limit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/program/compile.h"
#include "engine/program/serving_settings.h"
#include "runtime/device_set.h"

namespace tessera {

// ChosenPages: the pools whose size is chosen, because a limit of memory and no size was given.
struct ChosenPages {
  bool full = false;     // any pool
  bool windows = false;  // pages of windows too
};
// `given` are not finalized.
ChosenPages chosen_pages(const ServingSettings& given);

// compile_serving, with pages chosen as `chosen` says: the largest number of pages that fits the memory limit next to weights
// and scratch; at least the pages of one sequence, at most those of all; else kOutOfMemory. Window pages are proportional, at
// least those of one sequence; if all layers have windows, window pages alone are chosen. `settings` are finalized.
Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings, ChosenPages chosen,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);
// The same with the fewest pages that one sequence needs, whatever the limit.
Result<CompiledProgram> compile_smallest(const Graph& forward, ServingSettings& settings, ChosenPages chosen,
                                         const std::shared_ptr<DeviceSet>& devices);

// PageBytes: bytes of one page of either pool on a device, keys and values of all its layers.
struct PageBytes {
  int64_t full = 0, window = 0;
};
// By device. `compiled` was made from `settings`.
std::vector<PageBytes> bytes_of_pages(const CompiledProgram& compiled, const ServingSettings& settings);

}  // namespace tessera
