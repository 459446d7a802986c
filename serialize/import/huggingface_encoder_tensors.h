// The tensors of an encoder's folder: names without the class's, those that only another head has, and those that files
// leave out.
#pragma once

#include <string_view>

#include "graph/models/model_family.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

// The prefix that classes with a head put before the names of the model below it: "bert." of model_type "bert".
std::string_view encoder_prefix(std::string_view model_type);
// Takes it away, and turns the older names of norms ("gamma", "beta") into today's.
void rename_encoder_tensors(ForeignTensors& tensors, std::string_view model_type);
// Sets what the tensors tell of the model (a pooler without a head); marks those that it has no place for as used, and
// gives those that no file has.
void place_encoder_tensors(const ForeignTensors& tensors, ModelConfig& config, ForeignPlaces& places);

}  // namespace tessera
