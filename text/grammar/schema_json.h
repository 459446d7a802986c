// JSON of schemas: numbers keep their digits at any size,
// and one keyword may hold several combined values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera::grammar {

inline constexpr size_t kMostSchemaBytes = size_t{256} << 10;

// Integers beyond 64 bits become binary values with their digits. Tuples of drafts before 2020-12 (lists as
// 'items', 'additionalItems') become 'prefixItems' and 'items' if "$schema" names such a draft. kInvalidArgument.
Result<Json> parse_schema(std::string_view text);

bool is_number(const Json& value);
// The value as JSON, with original digits.
std::string json_text(const Json& value);
// Equality in JSON schema: 1 equals 1.0.
bool is_same(const Json& a, const Json& b);
// Negative if a < b, 0 if equal; both numbers.
int compare_numbers(const Json& a, const Json& b);

// Combines two values of a keyword; `values_together` splits them.
Json hold_together(const Json& a, const Json& b);
std::vector<Json> values_together(const Json& value);

}  // namespace tessera::grammar
