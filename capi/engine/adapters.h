// Low-rank adapters of models: models with them, and models that have taken them in.
#pragma once

#include <memory>

#include "capi/engine/shared_model.h"

namespace tessera {

// Options rank, alpha, on (tessera.h). The values of `model` are shared, not copied; it stays as it is.
Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options);

// W + factor * A B in place of every weight with an adapter; the graph is the one without them.
Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model);

}  // namespace tessera
