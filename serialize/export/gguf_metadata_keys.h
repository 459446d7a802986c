// A model's metadata as keys of a GGUF file: the inverse of read_gguf_metadata.
#pragma once

#include <string_view>

#include "serialize/export/gguf_writer.h"
#include "serialize/model.h"

namespace tessera {

// Writes chat templates, sampler settings, <architecture>.pooling_type, and keys
// of our own where the format has none. `has_classes`: the pooling is rank.
void write_gguf_metadata(const Model& model, std::string_view architecture, bool has_classes, GgufWriter& out);

}  // namespace tessera
