// Keywords of JSON schema: which are obeyed, which say nothing about a value, and which are refused; and what several
// schemas ask for together.
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
  kAnnotation,  // also every name that JSON schema does not know
  kRefused
};
KeywordUse use_of_keyword(std::string_view keyword);

// kUnsupported for keywords that are refused, by name.
Status check_keywords(const Json& schema, const std::string& where);
// Whether a schema that is an object limits values, other than by these keywords.
bool has_constraints_beside(const Json& schema, std::initializer_list<std::string_view> keywords);

// The types that a schema names or that its keywords are for; all of them where there are none. kInvalidArgument for a
// type that does not exist.
Result<std::vector<std::string>> types_of_schema(const Json& schema, const std::string& where);
bool is_of_type(const Json& value, std::string_view type);

// The schema of values that both allow, as far as keywords can say it. kUnsupported where they cannot.
Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& where);

// A schema that is a part of another one: what it does not evaluate itself is additional to it, whatever the other evaluates.
Json close_unevaluated(Json schema);

// "JSON schema, #/properties/a: ..."
Status schema_error(StatusCode code, const std::string& where, std::string_view what);

}  // namespace tessera::grammar
