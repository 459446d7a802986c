// Model -> model: an output head apart from the token embedding.
#pragma once

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

// Whether the model's head is its token embedding.
bool has_tied_head(const Model& model);

// The same function with a parameter "output" of its own, which has the embedding's value. `model` has a tied head and
// is what its family's builder makes of its description. Metadata "base_head" is "tied" from here on.
Result<Model> with_untied_head(const Model& model);

}  // namespace tessera
