// ArgumentSchema: a tool's JSON schema for one argument, or a value within one; decides
// whether a bare value may be a text. Work is bounded; beyond the bound everything is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace tessera::answer {

class ArgumentSchema {
 public:
  ArgumentSchema() = default;  // allows everything
  // The schema of a tool's arguments, an object. `tools` must outlive this.
  static ArgumentSchema of_tool(const Json& tools, std::string_view name);

  bool is_known() const { return kind_ != Kind::kUnknown; }
  // The schema of an object's property, and of an array's item.
  ArgumentSchema property(const std::string& name) const;
  ArgumentSchema item(size_t index) const;

  struct Verdict {
    bool is_valid = true;
    bool is_named = false;  // a type, a value or a keyword of its type decides
    bool is_exact = true;   // false if parts of an array or object would have to be examined
  };
  // Exact for scalars, except `format`, which is an annotation; ignores the parts of arrays and objects.
  Verdict check(const Json& value) const;
  // Whether some value of this value's type may be valid.
  bool allows_type_of(const Json& value) const;
  // Whether the schema names that type: true for a text in {"type": "string"}, false in {}.
  bool names_type_of(const Json& value) const;

 private:
  enum class Kind : uint8_t { kUnknown, kSchema, kAll, kAny };
  enum class Mode : uint8_t { kValue, kType };
  // Work: schemas that may still be visited, and the present depth.
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
  const Json* root_ = nullptr;    // the tool's parameters, which references refer to
  const Json* schema_ = nullptr;  // of kSchema
  std::vector<ArgumentSchema> parts_;
};

}  // namespace tessera::answer
