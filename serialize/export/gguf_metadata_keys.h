// What a model's metadata say around it as keys of a GGUF file: the way back of read_gguf_metadata.
#pragma once

#include <string_view>

#include "serialize/export/gguf_writer.h"
#include "serialize/model.h"

namespace tessera {

// Chat templates, settings of samplers, <architecture>.pooling_type, and keys of our own for what the format has none for.
// `has_classes`: the pooling is that of classes (rank).
void write_gguf_metadata(const Model& model, std::string_view architecture, bool has_classes, GgufWriter& out);

}  // namespace tessera
