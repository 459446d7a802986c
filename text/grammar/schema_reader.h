// SchemaReader: converts a JSON schema to expressions. Every $ref is a rule, so schemas may be recursive. One thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/grammar/language.h"
#include "text/grammar/member_marks.h"
#include "text/grammar/schema_json.h"
#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_pointer.h"
#include "text/json.h"

namespace tessera::grammar {

class SchemaReader {
 public:
  // `marks`: around the members of the root, an object then; null: JSON.
  SchemaReader(JsonText& json, const Json& root, const MemberMarks* marks = nullptr)
      : json_(json), out_(json.expressions()), root_(root), marks_(marks) {}

  Result<RuleId> read();
  // The first unsatisfiable part; empty: none. The whole may still be satisfiable.
  const std::string& contradiction() const { return contradiction_; }

 private:
  static constexpr int kMostDepth = 100;           // nesting, after merging
  static constexpr int64_t kMostMerged = 1 << 20;  // values copied by merging
  struct Limits {
    uint32_t minimum = 0, maximum = kUnbounded;
  };
  enum class Place : uint8_t {
    kValue,    // a JSON value
    kMembers,  // the root, whose members are between marks
    kMarked,   // a value between marks, where texts have no quotation marks
  };
  // Scope: how the present value is written.
  struct Scope {
    Place place = Place::kValue;
    std::string close = {};  // of kMarked: the mark behind it
    std::string type = {};   // of kMarked: the only type that is written; empty: all
    auto operator<=>(const Scope&) const = default;
  };
  class Within {
   public:
    Within(SchemaReader& reader, Scope scope)
        : reader_(reader), before_(std::exchange(reader.scope_, std::move(scope))) {}
    ~Within() { reader_.scope_ = std::move(before_); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    SchemaReader& reader_;
    Scope before_;
  };
  struct Target {
    Scope scope;
    std::string pointer;
    const Json* schema;
    RuleId rule;
  };

  Result<ExpressionId> read_schema(const Json& schema, const std::string& where);
  Result<ExpressionId> any_value(const std::string& where);
  bool is_written(std::string_view type) const;  // in the present scope
  Result<ExpressionId> read_schema_at_depth(const Json& schema, const std::string& where);
  Result<ExpressionId> read_values(const Json& schema, const std::string& where);  // enum and const
  Result<ExpressionId> read_type(const Json& schema, const std::string& type, const std::string& where);
  Result<std::vector<std::string>> read_required(const Json& schema, const std::string& where);
  // For example minItems and maxItems.
  Result<Limits> read_limits(const Json& schema, const char* minimum, const char* maximum,
                             const std::string& where);

  // schema_branches.cc
  Result<ExpressionId> read_branches(const Json& schema, const char* keyword, const std::string& where);
  Result<ExpressionId> read_any_of(const std::vector<Json>& branches, const std::string& where);
  // The branch restricted to values that the other forbids; null if no keyword can express it.
  Result<Json> separate(const Json& branch, const Json& other, const std::string& where);
  // Whether no value satisfies both; false if undecided.
  Result<bool> is_disjoint(const Json& a, const Json& b, const std::string& where, int depth);
  // The schema without 'not', which other keywords or the strings themselves enforce.
  Result<Json> apply_not(const Json& schema, const std::string& where);

  // schema_check.cc
  // Whether the schema allows the value; nullopt if undecided.
  std::optional<bool> allows(const Json& value, const Json& schema, int depth = 0);
  std::optional<bool> allows_string(const std::string& text, const Json& schema);
  std::optional<bool> allows_number(const Json& value, const Json& schema);
  std::optional<bool> allows_array(const Json& value, const Json& schema, int depth);
  std::optional<bool> allows_object(const Json& value, const Json& schema, int depth);
  // All allowed values, unique, if they are few.
  std::optional<std::vector<Json>> list_values(const Json& schema, const std::string& where, int depth = 0);

  // schema_strings.cc, schema_numbers.cc
  Result<ExpressionId> read_string(const Json& schema, const std::string& where);
  // The language of texts in the present scope.
  LanguageId scope_language();
  // The strings without quotes: pattern, format, lengths, not.
  Result<LanguageId> string_language(const Json& schema, const std::string& where, bool is_excluded = false);
  Result<ExpressionId> read_number(const Json& schema, bool is_integer, const std::string& where);
  Result<ExpressionId> read_range(const Json& schema, bool is_integer, const std::string& where);
  // A number schema and a string schema of its numerals, as for
  // decimals, combined; nullopt if they are not such a pair.
  Result<std::optional<ExpressionId>> read_numerals(const Json& number, const Json& string,
                                                    const std::string& where);

  // schema_arrays.cc
  Result<ExpressionId> read_array(const Json& schema, const std::string& where);
  Result<ExpressionId> read_set(const Json& schema, const Limits& length, const std::string& where);

  // schema_objects.cc
  struct Property {
    std::string name;
    Member member;
  };
  Result<ExpressionId> read_object(const Json& schema, const std::string& where);
  Result<std::vector<Property>> read_properties(const Json& schema, const std::string& where);
  // Members with unlisted names, of several kinds; empty: the object is closed.
  Result<std::vector<ExpressionId>> read_additional(const Json& schema, const std::vector<Property>& properties,
                                                    const std::string& where);
  ExpressionId counted_members(const std::vector<Property>& properties, std::optional<ExpressionId> more,
                               const Limits& count);

  // schema_members.cc: members in the present scope, and between marks
  Result<ExpressionId> read_member(const std::string& name, const Json& schema, const std::string& where);
  Result<std::vector<ExpressionId>> read_marked_additional(const Json& schema, const std::vector<std::string>& known,
                                                           const std::string& where);
  // `name`: as it is written; `close`: with a name for "\1".
  Result<ExpressionId> read_marked_member(ExpressionId name, const WrittenMark& close, const Json& schema,
                                          const std::string& where);
  ExpressionId separator();
  ExpressionId enclosed(std::span<const Member> members);  // in braces, but not between marks

  // One schema with $ref and allOf resolved.
  Result<Json> flatten(const Json& schema, const std::string& where, int depth);
  Result<ExpressionId> call(const std::string& reference, const std::string& where);
  ExpressionId nothing(const std::string& where, const std::string& why);
  Status spend(const Json& copied, const std::string& where);

  JsonText& json_;
  Expressions& out_;
  const Json& root_;
  const MemberMarks* const marks_;
  Scope scope_;
  std::map<std::pair<Scope, std::string>, RuleId> rules_;  // by pointer
  std::vector<Target> queue_;            // rules, in the order in which they are read
  std::string contradiction_;
  Languages languages_;
  std::map<std::pair<Scope, std::string>, ExpressionId> strings_;  // of limited strings, by their keywords
  bool is_pattern_refused_ = false;              // the last error is about a pattern
  int depth_ = 0;
  int64_t merged_ = 0;
};

}  // namespace tessera::grammar
