// Tokenizers of Hugging Face model folders, as pipelines.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace tessera {

// Texts of the files of a folder.
struct HuggingFaceTexts {
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json; empty where there is none
  std::vector<int32_t> end_ids;       // eos_token_id of generation_config.json or config.json
};

// BOS, EOS and what stands around a text are those of the post-processor; special tokens are named by
// tokenizer_config.json. The sections truncation and padding are left out, as transformers does unless a call asks for
// them: texts keep their length. Tokenizer::create checks the rest.
Result<TokenizerData> hf_tokenizer(const HuggingFaceTexts& texts);
// The same from a description with its vocabulary and a tokenizer_config.json, whose add_bos_token and add_eos_token count.
Result<TokenizerData> pipeline_data(TokenizerJson description, const nlohmann::json& tokenizer_config,
                                    std::vector<int32_t> end_ids);
// Tokens that end texts. Ids past the vocabulary become unused tokens where a model's table of so many rows has them (0:
// its size is not known), and are left out elsewhere: no text ends by them.
void put_end_ids(std::vector<int32_t> ids, int64_t table_rows, TokenizerData& data);

}  // namespace tessera
