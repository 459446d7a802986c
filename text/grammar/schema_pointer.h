// References within a JSON schema: "#/$defs/a".
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera::grammar {

// An escaped part of a pointer: "/" and the name.
std::string pointer_part(const std::string& name);

// Resolves `reference` of the schema at `where`, with its `pointer` in `root`.
// kUnsupported for other documents, kInvalidArgument for a missing target.
Result<const Json*> find_schema(const Json& root, const std::string& reference, const std::string& where,
                                std::string& pointer);

}  // namespace tessera::grammar
