// StepSetting: a setting of an optimizer's update, an attribute or an operand of one step.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

struct StepSetting {
  double planned = 0;
  int operand = -1;  // f64 []; -1: none

  double value(const LaunchArgs& args) const { return operand < 0 ? planned : *args.in<double>(operand); }
};

// The settings `names`, whose operands, where the update has them, are from `first` on.
template <size_t N>
std::array<StepSetting, N> step_settings(const KernelSpec& spec, int first,
                                         const std::array<std::string_view, N>& names) {
  const bool has_operands = spec.input_count() >= first + static_cast<int>(N);
  std::array<StepSetting, N> settings;
  for (size_t i = 0; i < N; ++i) {
    settings[i].planned = spec.f64(names[i]);
    const bool is_fixed = names[i] == "weight_decay" && spec.i64("fixed_decay") == 1;
    if (has_operands && !is_fixed) settings[i].operand = first + static_cast<int>(i);
  }
  return settings;
}

}  // namespace tessera::cpu
