// A tokenizer as the tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// kUnsupported says why another tokenizer would come of it.
Result<std::string> write_tokenizer_json(const TokenizerData& data);

}  // namespace tessera
