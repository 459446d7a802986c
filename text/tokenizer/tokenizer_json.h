// Reads tokenizer.json within bounds: long parts go to lists, the rest to a small tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/added_tokens.h"

namespace tessera {

struct TokenizerJson {
  // Without model.vocab, model.merges and added_tokens.
  nlohmann::json rest = nlohmann::json::object();
  std::vector<std::pair<std::string, int64_t>> vocabulary;  // tokens and their ids
  std::vector<double> log_probabilities;                    // for vocabularies with these instead of ids
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added;
};

// kCorrupt, beginning with `what`, for invalid JSON, and nesting above 64.
Result<TokenizerJson> read_tokenizer_json(std::string_view text, std::string_view what);

}  // namespace tessera
