// SchemaReader: a JSON schema as expressions. Every $ref is a rule, so that schemas may be recursive. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "serialize/grammar/json_text.h"
#include "serialize/grammar/schema_keywords.h"
#include "serialize/grammar/schema_pointer.h"
#include "serialize/json.h"

namespace tessera::grammar {

inline constexpr size_t kMostSchemaBytes = size_t{256} << 10;

class SchemaReader {
 public:
  SchemaReader(JsonText& json, const Json& root) : json_(json), out_(json.expressions()), root_(root) {}

  Result<RuleId> read();
  // Where the first part is that no value meets; empty for none. The whole may still allow some.
  const std::string& contradiction() const { return contradiction_; }

 private:
  static constexpr int kMostDepth = 100;           // schemas within each other, after merging
  static constexpr int64_t kMostMerged = 1 << 20;  // values copied where schemas are merged
  struct Limits {
    uint32_t minimum = 0, maximum = kUnbounded;
  };
  struct Target {
    std::string pointer;
    const Json* schema;
    RuleId rule;
  };

  Result<ExpressionId> read_schema(const Json& schema, const std::string& where);
  Result<ExpressionId> read_schema_at_depth(const Json& schema, const std::string& where);
  Result<ExpressionId> read_branches(const Json& schema, const char* keyword, const std::string& where);
  Result<ExpressionId> read_values(const Json& schema, const std::string& where);  // enum and const
  Result<ExpressionId> read_type(const Json& schema, const std::string& type, const std::string& where);
  Result<ExpressionId> read_string(const Json& schema, const std::string& where);
  Result<ExpressionId> read_number(const Json& schema, bool is_integer, const std::string& where);
  Result<ExpressionId> read_array(const Json& schema, const std::string& where);
  Result<ExpressionId> read_object(const Json& schema, const std::string& where);
  Result<ExpressionId> read_map(const Json& schema,
                                const std::string& where);  // an object without properties
  Result<std::vector<std::string>> read_required(const Json& schema, const std::string& where);

  // minItems and maxItems, say.
  Result<Limits> read_limits(const Json& schema, const char* minimum, const char* maximum,
                             const std::string& where);
  // With $ref and allOf resolved, as one schema.
  Result<Json> flatten(const Json& schema, const std::string& where, int depth);
  Result<ExpressionId> call(const std::string& reference, const std::string& where);
  // Whether no value is allowed by both. False where that is not plain.
  Result<bool> is_disjoint(const Json& a, const Json& b, const std::string& where, int depth);
  ExpressionId nothing(const std::string& where, const std::string& why);
  Status spend(const Json& copied, const std::string& where);

  JsonText& json_;
  Expressions& out_;
  const Json& root_;
  std::map<std::string, RuleId> rules_;  // by pointer
  std::vector<Target> queue_;            // rules, in the order in which they are read
  std::string contradiction_;
  int depth_ = 0;
  int64_t merged_ = 0;
};

}  // namespace tessera::grammar
