// Tokenizers of Hugging Face model folders, as pipelines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/tokenizer/tokenizer.h"
#include "serialize/tokenizer/tokenizer_json.h"

namespace tessera {

// Texts of the files of a folder.
struct HuggingFaceTexts {
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json; empty where there is none
  std::vector<int32_t> end_ids;       // eos_token_id of generation_config.json or config.json
};

// BOS, EOS and what stands around a text are those of the post-processor, unless tokenizer_config.json has add_bos_token
// or add_eos_token; special tokens are named by tokenizer_config.json. The sections truncation and padding are left out,
// as transformers does unless a call asks for them: texts keep their length. Tokenizer::create checks the rest.
Result<TokenizerData> hf_tokenizer(const HuggingFaceTexts& texts);
// The same from a description with its vocabulary.
Result<TokenizerData> pipeline_data(TokenizerJson description, std::string_view tokenizer_config,
                                    std::vector<int32_t> end_ids);

// Reads a file of a folder by its name; nullopt where there is none.
using ReadFolderFile = std::function<Result<std::optional<std::string>>(const std::string& name)>;

// The tokenizer of a folder: tokenizer.json, else tokenizer.model (SentencePiece), vocab.json with merges.txt, or
// vocab.txt (WordPiece); with tokenizer_config.json, generation_config.json and config.json where they are. nullopt where
// it has none of the first four.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const ReadFolderFile& read);
// The same of a folder in the file system, or of a file in one that stands for its tokenizer.json.
Result<std::optional<TokenizerData>> hf_folder_tokenizer(const std::string& path);

}  // namespace tessera
