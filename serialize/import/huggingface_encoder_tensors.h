// The tensors of an encoder's folder: names without the class's, those that only another head has, and those that files
// leave out.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {

// The prefix that classes with a head put before the names of the model below it: "bert." of model_type "bert".
std::string_view encoder_prefix(std::string_view model_type);
// Takes away the prefix that the file has, that one or another class's, and turns the older names of norms ("gamma", "beta") into today's.
void rename_encoder_tensors(ForeignTensors& tensors, std::string_view model_type);
// The tensor with the bias of the output projection, as that projection's own class has it; empty where it is the one
// that the family's table names. "cls.predictions.decoder.bias" of model_type "bert".
std::string_view decoder_bias(std::string_view family);
// Sets what the tensors tell of the model (a pooler without a head, an output projection that is not the embedding);
// marks those that it has no place for as used, and gives those that no file has.
Status place_encoder_tensors(ForeignFile& file, HuggingfaceConfig& config, ForeignPlaces& places);

}  // namespace tessera
