// Tokenizer files of a Hugging Face folder, in any of their forms.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Reads a file of a folder by name; nullopt: absent.
using ReadFolderFile = std::function<Result<std::optional<std::string>>(const std::string& name)>;

// The folder's tokenizer: tokenizer.json, else tokenizer.model (SentencePiece), vocab.json with merges.txt,
// SentencePiece's file under other names, or vocab.txt (WordPiece); with tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, generation_config.json and config.json if present. nullopt without a vocabulary.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const ReadFolderFile& read);
// Likewise for a folder in the file system, or a file that stands for its tokenizer.json.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const std::string& path);

}  // namespace tessera
