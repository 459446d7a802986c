// The tokenizer files of a Hugging Face folder, in whatever form it has them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Reads a file of a folder by its name; nullopt where there is none.
using ReadFolderFile = std::function<Result<std::optional<std::string>>(const std::string& name)>;

// The tokenizer of a folder: tokenizer.json, else tokenizer.model (SentencePiece), vocab.json with merges.txt,
// SentencePiece's file under its other names, or vocab.txt (WordPiece); with tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json
// and config.json where they are. nullopt where it has none of the first four.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const ReadFolderFile& read);
// The same of a folder in the file system, or of a file in one that stands for its tokenizer.json.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const std::string& path);

}  // namespace tessera
