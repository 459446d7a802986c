// Exports a tokenizer as tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// kUnsupported, with the reason, if the result would differ.
Result<std::string> write_tokenizer_json(const TokenizerData& data);

}  // namespace tessera
