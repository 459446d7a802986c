// Why a frozen model with adapters is planned differently from one that is trained in full: both plans, and
// what the frozen weights no longer ask for.
#pragma once

#include <string>
#include <vector>

#include "parallel/analytic/step_search.h"

namespace tessera {

// `found`: the best with options.features.lora > 0. Searches full training with the same pins. Sentences.
std::vector<std::string> frozen_reasons(const TransformerShape& model, const Cluster& cluster,
                                        const StepSearchOptions& options, const FoundStep& found);

}  // namespace tessera
