// The tokenizer of a file, without the rest of the model: .tsr, GGUF, a vocabulary-only GGUF, or a Hugging Face folder or
// its tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(
    const std::string& path);  // kNotFound when it has none

}  // namespace tessera
