// The tokenizer of a file without its model: .tsr, GGUF (also
// vocabulary-only), a Hugging Face folder or its tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(
    const std::string& path);  // kNotFound without a tokenizer

}  // namespace tessera
