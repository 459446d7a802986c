// Low-rank adapters of models: adding them, and merging them into the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "capi/engine/shared_model.h"

namespace tessera {

// Options rank, alpha, on (tessera.h). The result shares the values of `model`, which stays as it is.
Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options);

// AdapterSummary: the options of add_adapters, read off its graph; nullopt for a graph without adapters.
struct AdapterSummary {
  int64_t rank = 0;
  double alpha = 0;
  std::string on;  // names of the weights, comma-separated
};
std::optional<AdapterSummary> adapter_summary(const Graph& graph);

// W + factor * A B in place of every weight with an adapter; the graph is the one without them.
Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model);

}  // namespace tessera
