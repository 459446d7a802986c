// Keywords of JSON schema: supported, ignored and
// refused ones; and the conjunction of schemas.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera::grammar {

enum class KeywordUse : uint8_t {
  kObeyed,
  kAnnotation,  // also every unknown name
  kRefused
};
KeywordUse use_of_keyword(std::string_view keyword);

// kUnsupported for refused keywords, by name.
Status check_keywords(const Json& schema, const std::string& where);
// Whether an object schema restricts values by other keywords than these.
bool has_constraints_beside(const Json& schema, std::initializer_list<std::string_view> keywords);

// Types named by a schema or implied by its keywords;
// all if none. kInvalidArgument for an unknown type.
Result<std::vector<std::string>> types_of_schema(const Json& schema, const std::string& where);
bool is_of_type(const Json& value, std::string_view type);

// The schema of values that both allow. kUnsupported if keywords cannot express it.
Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& where);

// Closes a schema that is part of another: what it does not evaluate is additional to it, whatever the other evaluates.
Json close_unevaluated(Json schema);

// "JSON schema, #/properties/a: ..."
Status schema_error(StatusCode code, const std::string& where, std::string_view what);

}  // namespace tessera::grammar
