// Low-rank adapters of models: adding them, and merging them into the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/shared_model.h"

namespace tessera {

// Adds adapters. Options: rank, alpha, on, exclude, layers, ranks, alphas, rslora, dora, init, dropout, also
// (tessera.h). The result shares the values of `model`, which stays as it is.
Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options);
// Adds adapters for plans alone: no value is read, and initial values of adapters are not computed.
Result<std::shared_ptr<SharedModel>> add_adapters_without_values(const SharedModel& model,
                                                                 const Options& options);

// Adds the adapters of a file: a PEFT folder, the adapter_model.safetensors in it, or a GGUF adapter. There are no options yet.
Result<std::shared_ptr<SharedModel>> load_adapters(const SharedModel& model, const std::string& path,
                                                   const Options& options);

// AdapterSummary: the options of add_adapters, read off its graph; nullopt for a graph without adapters.
struct AdapterSummary {
  int64_t rank = 0;
  double alpha = 0;
  std::string on;  // names of the weights, comma-separated
  bool is_usual = false;  // whether they are those of add_adapters without the option on: the matrices of the blocks
  bool rslora = false, dora = false;
  std::string ranks, alphas;  // of weights that have others: "block.0.q.weight=4,..."
  bool has_start = false;     // init pissa
  double dropout = 0;
  std::string also;           // names of other parameters that train, comma-separated

  // The members other than rank, alpha and on that are not at their defaults: names and texts of options.
  std::vector<std::pair<std::string, std::string>> more() const;
};
std::optional<AdapterSummary> adapter_summary(const Graph& graph);

// W + factor * A B, times magnitude / norm, in place of every weight with an adapter; the graph is the one without them.
Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model);

}  // namespace tessera
