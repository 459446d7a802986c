// Metadata of an encoder's GGUF file, for llama.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/gguf_keys.h"
#include "serialize/export/gguf_writer.h"
#include "serialize/opened_model.h"

namespace tessera {

// Writes the keys. Heads that the format lacks are omitted with a note;
// classes that llama.cpp computes differently are refused by name.
Result<WrittenKeys> write_gguf_encoder_keys(const ExportedConfig& model, GgufWriter& out);

// Adds the parameters of omitted heads to `left_out`.
void leave_out_heads(const EncoderSizes& sizes, std::set<std::string, std::less<>>& left_out);

// Removes the rows of the position table before position 0, which the format lacks.
Status cut_positions(OpenedModel& opened, int64_t rows);

}  // namespace tessera
