// RequestRow: a request parsed from a row of JSON: {"prompt", "messages" or "ids", an "id", options of tsr_engine_submit}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "text/json.h"

namespace tessera {

struct RequestRow {
  Json id;  // the row's own; null: none
  enum class Kind : uint8_t { kText, kMessages, kIds } kind = Kind::kText;
  std::string text;  // the prompt, or the messages as JSON
  std::vector<int32_t> ids;
  Options options;      // of a request, except "adapter"
  std::string adapter;  // the row's own; empty: none
  int64_t texts = 1;
  bool is_constrained = false;  // has a constraint on its texts
};

// kInvalidArgument, without a line number.
Result<RequestRow> parse_request_row(std::string_view row);

}  // namespace tessera
