// Tensors of an encoder's folder: removes class prefixes,
// marks tensors of other heads, and adds omitted ones.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {

// The prefix of the model's tensors in classes with a head: "bert." for model_type "bert".
std::string_view encoder_prefix(std::string_view model_type);
// Removes the file's prefix, of this or another class, and renames older norm tensors ("gamma", "beta").
void rename_encoder_tensors(ForeignTensors& tensors, std::string_view model_type);
// The bias tensor of the output projection in its own class; empty if it is
// the one in the family's table. "cls.predictions.decoder.bias" for "bert".
std::string_view decoder_bias(std::string_view family);
// Sets properties determined by tensors (a pooler without a head, an untied output
// projection); marks tensors without a parameter as used, and adds values of omitted ones.
Status place_encoder_tensors(ForeignFile& file, HuggingfaceConfig& config, ForeignPlaces& places);

}  // namespace tessera
