// References within a JSON schema: "#/$defs/a".
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera::grammar {

// A part of a pointer: "/" and the name, escaped.
std::string pointer_part(const std::string& name);

// The schema that `reference` of the schema at `where` names, and its `pointer` in `root`. kUnsupported for references
// to other documents, kInvalidArgument where there is nothing.
Result<const Json*> find_schema(const Json& root, const std::string& reference, const std::string& where,
                                std::string& pointer);

}  // namespace tessera::grammar
