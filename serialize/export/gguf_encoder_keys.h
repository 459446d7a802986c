// The metadata of a GGUF file that describe an encoder, as llama.cpp reads them.
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

// Writes the keys; heads that the format has no word for are left out with a note, classes that llama.cpp would compute
// otherwise are refused by name.
Result<GgufKeys> write_gguf_encoder_keys(const ExportedConfig& model, GgufWriter& out);

// Parameters of heads that the file has not.
void leave_out_heads(const EncoderSizes& sizes, std::set<std::string, std::less<>>& left_out);

// The table of positions without the rows before that of position 0, which the format has not.
Status cut_positions(OpenedModel& opened, int64_t rows);

}  // namespace tessera
