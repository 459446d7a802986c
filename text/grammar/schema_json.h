// JSON of schemas: numbers stay as they are written, whatever their size, and several values of one keyword may hold
// together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera::grammar {

inline constexpr size_t kMostSchemaBytes = size_t{256} << 10;

// Whole numbers past 64 bits become binary values that hold their digits. Tuples of drafts before 2020-12 (lists as 'items',
// 'additionalItems') become 'prefixItems' and 'items' where "$schema" names such a draft. kInvalidArgument.
Result<Json> parse_schema(std::string_view text);

bool is_number(const Json& value);
// The value as JSON, digits as they are written.
std::string json_text(const Json& value);
// Whether two values are the same for JSON schema: 1 and 1.0 are.
bool is_same(const Json& a, const Json& b);
// Below 0 where a < b, both numbers; 0 where they are equal.
int compare_numbers(const Json& a, const Json& b);

// A keyword's value that asks for both; `values_together` takes it apart again.
Json hold_together(const Json& a, const Json& b);
std::vector<Json> values_together(const Json& value);

}  // namespace tessera::grammar
