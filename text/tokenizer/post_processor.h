// Tokens that a tokenizer file puts before and after a text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

struct SurroundingTokens {
  std::vector<int32_t> before, after;
};

// From tokenizer.json's "post_processor", for single texts; null: none.
Result<SurroundingTokens> read_post_processor(const nlohmann::json& description);

}  // namespace tessera
