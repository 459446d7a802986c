// Low-rank adapters of models: adding them, and merging them into the weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/shared_model.h"

namespace tessera {

// Adds adapters. Options: rank, alpha, on, exclude, layers, ranks, alphas, rslora, dora, init,
// dropout, also (tessera.h). The result shares the values of `model`, which is unchanged.
Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options);
// Names of the weights that add_adapters would choose by the option `on`.
Result<std::vector<std::string>> adapted_weights(const SharedModel& model, const std::string& on);
// Adds adapters for planning: reads no values, and computes no initial values.
Result<std::shared_ptr<SharedModel>> add_adapters_without_values(const SharedModel& model,
                                                                 const Options& options);

// Adds the adapters of a PEFT folder, its adapter_model.safetensors, or a GGUF file. No options yet.
Result<std::shared_ptr<SharedModel>> load_adapters(const SharedModel& model, const std::string& path,
                                                   const Options& options);

// AdapterSummary: the options of add_adapters, derived from its graph; nullopt without adapters.
struct AdapterSummary {
  int64_t rank = 0;
  double alpha = 0;
  std::string on;  // names of the weights, comma-separated
  bool is_usual = false;  // `on` is the default: the matrices of the blocks
  bool rslora = false, dora = false;
  std::string ranks, alphas;  // exceptions by weight: "block.0.q.weight=4,..."
  bool has_start = false;     // init pissa
  double dropout = 0;
  std::string also;           // other trained parameters, comma-separated

  // Options with non-default values, except rank, alpha and on.
  std::vector<std::pair<std::string, std::string>> more() const;
};
std::optional<AdapterSummary> adapter_summary(const Graph& graph);

// The model with these values of parameters.
Result<std::shared_ptr<SharedModel>> with_parameter_values(const SharedModel& model,
                                                           const std::map<std::string, HostTensor, std::less<>>& values);

// Replaces each adapted weight by W + factor * A B, times magnitude / norm; the graph has no adapters.
Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model);

}  // namespace tessera
