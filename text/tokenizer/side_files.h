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

// One tokenizer_config.json that says what the three say together, as transformers reads them: where the configuration has
// added_tokens_decoder the others do not count, else the map's names win and added_tokens.json becomes
// added_tokens_decoder. kCorrupt names the file that is no such JSON.
Result<nlohmann::json> merge_side_files(const SideFileTexts& texts);

// Tokens of `added_tokens_decoder`, by their ids.
Result<std::map<int64_t, AddedToken>> decoder_tokens(const nlohmann::json& config);
// Tokens that a configuration names: bos_token and the like, further keys that end in _token, extra_special_tokens. They
// are special; their ids are the vocabulary's, or the next ones.
std::vector<AddedToken> named_tokens(const nlohmann::json& config);

}  // namespace tessera
