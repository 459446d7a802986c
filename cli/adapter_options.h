// Options of low-rank adapters that train (--lora and its kind), and functions that add them to a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "handle.h"

namespace cli {

struct Adapters {
  int64_t rank = 0;  // 0: none
  std::optional<double> alpha;
  std::optional<double> dropout;
  std::string on, exclude, layers, ranks, alphas, init, also;
  bool rslora = false, dora = false;
};
void add_adapter_options(CLI::App& command, Adapters& adapters);
// Options of tsr_model_add_adapters; without rank if none was given.
Options adapter_options(const Adapters& adapters);
bool has_adapter_options(const Adapters& adapters);  // other than the rank
Model add_adapters(Model model, const Adapters& adapters);
// Adapters that the checkpoint's model has and `model` lacks; rank 0: none.
Adapters missing_adapters(const std::string& checkpoint, const Model& model);

}  // namespace cli
