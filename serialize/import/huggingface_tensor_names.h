// Renames tensors of Hugging Face folders to the family's table, and finds the output projection.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {

// Removes the prefix of the saving class ("layers.0", "model.layers.0",
// "transformer.h.0", "language_model.model.layers.0") in favour of ...ForCausalLM's.
void rename_decoder_tensors(ForeignTensors& tensors, std::string_view model_type);

// Determines the output projection. Sets flag "tied" if the file has no separate one; as
// in transformers one that differs from the embedding counts, and one without an embedding
// serves as both. Without a projection, flag "head" = 0. `used`: tensors accounted for.
Status choose_head(ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config,
                   ForeignPlaces& places);

}  // namespace tessera
