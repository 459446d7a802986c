// PostProcessor: the tokens that a tokenizer file puts before and after a text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

struct SurroundingTokens {
  std::vector<int32_t> before, after;
};

// From a "post_processor" of tokenizer.json, as it treats one text (not a pair of them); null puts none.
Result<SurroundingTokens> read_post_processor(const nlohmann::json& description);

}  // namespace tessera
