// ArgumentSchema: what a tool's JSON schema says about one argument, or about a value within one: whether a value that
// is written bare may be a text. Work is bounded; where the bound is met, nothing is known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace tessera::answer {

class ArgumentSchema {
 public:
  ArgumentSchema() = default;  // nothing is known
  // Of a tool's arguments, an object. `tools` outlives this.
  static ArgumentSchema of_tool(const Json& tools, std::string_view name);

  bool is_known() const { return kind_ != Kind::kUnknown; }
  // Of a property of objects, and of an item of arrays.
  ArgumentSchema property(const std::string& name) const;
  ArgumentSchema item(size_t index) const;

  struct Verdict {
    bool is_valid = true;
    bool is_named = false;  // a type, a value or a keyword of its type says so
    bool is_exact = true;   // false where parts of an array or object would have to be looked at
  };
  // Of scalars exactly, except for `format`, which is an annotation; of arrays and objects without their parts.
  Verdict check(const Json& value) const;
  // Whether a value of this one's type may be valid.
  bool allows_type_of(const Json& value) const;
  // Whether it also says so: true of a text in {"type": "string"}, false in {}.
  bool names_type_of(const Json& value) const;

 private:
  enum class Kind : uint8_t { kUnknown, kSchema, kAll, kAny };
  enum class Mode : uint8_t { kValue, kType };
  // Schemas that may still be visited, and the depth of the one that is.
  struct Work {
    int left = 20'000;
    int depth = 0;
  };

  static ArgumentSchema combine(Kind kind, std::vector<ArgumentSchema> parts);
  ArgumentSchema leaf(const Json& schema) const;
  template <class Own>
  ArgumentSchema descend(const Json& schema, Work& work, const Own& own) const;
  template <class Own>
  ArgumentSchema descend(Work& work, const Own& own) const;
  ArgumentSchema own_property(const Json& schema, const std::string& name) const;
  Verdict check(const Json& value, Mode mode, Work& work) const;
  Verdict check_schema(const Json& schema, const Json& value, Mode mode, Work& work) const;
  Verdict check_branches(const Json& schema, const Json& value, Mode mode, Work& work) const;

  Kind kind_ = Kind::kUnknown;
  const Json* root_ = nullptr;    // the tool's parameters, which references are in
  const Json* schema_ = nullptr;  // of kSchema
  std::vector<ArgumentSchema> parts_;
};

}  // namespace tessera::answer
