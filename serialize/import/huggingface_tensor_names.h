// Tensors of Hugging Face folders under the names of the family's table, and the output projection that a file has.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {

// Decoders are saved from several classes, whose prefixes differ: "layers.0", "model.layers.0", "transformer.h.0",
// "language_model.model.layers.0". Afterwards all have the prefix of …ForCausalLM.
void rename_decoder_tensors(ForeignTensors& tensors, std::string_view model_type);

// Settles what projects the last hidden states. A flag "tied" holds where the file has no other projection: one that
// differs from the embedding counts, as in transformers, and one without an embedding is both. A model without a
// projection has none (flag "head" = 0). `used`: tensors that need no place.
Status choose_head(ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config,
                   ForeignPlaces& places);

}  // namespace tessera
