// Side files of a Hugging Face tokenizer: tokenizer_config.json, special_tokens_map.json and added_tokens.json.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/added_tokens.h"

namespace tessera {

struct SideFileTexts {
  std::optional<std::string> tokenizer_config, special_tokens_map, added_tokens;
};

// Merges the three files into one tokenizer_config.json, as transformers does. With
// `added_tokens_decoder` in tokenizer_config.json the other two files are ignored. Without it, names in
// special_tokens_map.json take precedence, and added_tokens.json becomes `added_tokens_decoder`.
// kCorrupt: an invalid file, named.
Result<nlohmann::json> merge_side_files(const SideFileTexts& texts);

// Tokens of `added_tokens_decoder`, by id.
Result<std::map<int64_t, AddedToken>> decoder_tokens(const nlohmann::json& config);
// Tokens named by a configuration: bos_token and similar, other keys ending in _token,
// extra_special_tokens. They are special; their ids are the vocabulary's, or the next free ones.
std::vector<AddedToken> named_tokens(const nlohmann::json& config);

}  // namespace tessera
