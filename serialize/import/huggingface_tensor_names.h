// Renames tensors of Hugging Face folders to the family's table, and finds the output projection.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {

// Removes the prefix of the saving class ("layers.0", "model.layers.0",
// "transformer.h.0", "language_model.model.layers.0") in favour of ...ForCausalLM's.
// A draft block has a norm and blocks, too.
void rename_decoder_tensors(ForeignTensors& tensors, const HuggingfaceConfig& config);

// Determines the output projection. Sets flag "tied" if the file has no separate one; as
// in transformers one that differs from the embedding counts, and one without an embedding
// serves as both. Without a projection, flag "head" = 0, as in a base class with attention in both directions, which computes no
// logits. `used`: tensors accounted for.
Status choose_head(ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config,
                   ForeignPlaces& places);

// Sets size "MTP", and flag "draft_tables" where the block has tables of its own, if the file has the draft block's tensors. They
// are ignored in models without a projection onto the vocabulary. After choose_head.
void read_draft_block(const ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config);

}  // namespace tessera
