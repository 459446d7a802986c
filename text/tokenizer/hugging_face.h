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

// HuggingFaceTexts: contents of a folder's files.
struct HuggingFaceTexts {
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json; empty where there is none
  std::vector<int32_t> end_ids;       // eos_token_id of generation_config.json or config.json
};

// BOS, EOS and surrounding tokens are the post-processor's;
// tokenizer_config.json names special tokens. Truncation and padding are
// ignored, as transformers does by default. Tokenizer::create checks the rest.
Result<TokenizerData> hf_tokenizer(const HuggingFaceTexts& texts);
// From a description with its vocabulary; add_bos_token and add_eos_token of tokenizer_config.json count.
Result<TokenizerData> pipeline_data(TokenizerJson description, const nlohmann::json& tokenizer_config,
                                    std::vector<int32_t> end_ids);
// Sets tokens that end texts. Ids past the vocabulary become unused tokens
// if a table of `table_rows` rows (0: unknown) has them; others are dropped.
void put_end_ids(std::vector<int32_t> ids, int64_t table_rows, TokenizerData& data);

}  // namespace tessera
