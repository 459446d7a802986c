// Unties a model's output head from its token embedding.
#pragma once

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

// Whether the model's head is its token embedding.
bool has_tied_head(const Model& model);

// The same function with a parameter "output", a copy of the embedding. `model` has a
// tied head and a graph built from its description. Sets metadata "base_head" to "tied".
Result<Model> with_untied_head(const Model& model);

}  // namespace tessera
