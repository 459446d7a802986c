#include "text/jinja/tests.h"

#include <algorithm>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace tessera::jinja {
namespace {

template <class Body>
Result<bool> without_arguments(std::string_view name, const Arguments& arguments, Body body) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments none, arguments.bind(name, {}));
  return body();
}

Result<const Value*> other(std::string_view name, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind(name, {"other"}));
  return bound.required(0);
}

Result<bool> divides(Evaluator& evaluator, const Value& value, int64_t by, int64_t rest) {
  TSR_ASSIGN_OR_RETURN(const Value left, apply_binary(evaluator.budget(), Operation::kModulo, value, by));
  return are_equal(evaluator.budget(), left, rest);
}

Result<bool> has_case(Evaluator& evaluator, const Value& value, bool (*wanted)(uint32_t)) {
  TSR_ASSIGN_OR_RETURN(const Text text, print(evaluator.budget(), value));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(2 * text.size()));
  bool cased = false, all = true;
  for (size_t at = 0, size = 0; at < text.size() && all; at += size) {
    const uint32_t code = code_point_at(text.bytes(), at, size);
    cased |= is_cased(code);
    all = !is_cased(code) || wanted(code);
  }
  return cased && all;
}

Result<bool> is_same(const Value& a, const Value& b) {
  if (a.index() != b.index()) return false;
  if (const auto* flag = std::get_if<bool>(&a)) return *flag == std::get<bool>(b);
  if (is<None>(a)) return true;
  if (const auto* list = std::get_if<ListPtr>(&a)) return *list == std::get<ListPtr>(b);
  if (const auto* dict = std::get_if<DictPtr>(&a)) return *dict == std::get<DictPtr>(b);
  return Status(StatusCode::kUnsupported, format("'sameas' is not supported for a {}", type_name(a)));
}

// Tests of a value's type, without arguments.
template <bool (*Holds)(const Value&)>
Result<bool> ask(Evaluator&, const Value& value, const Arguments& arguments) {
  return without_arguments("the test", arguments, [&value] { return Result<bool>(Holds(value)); });
}

bool is_defined(const Value& value) { return !is<Undefined>(value); }
bool is_undefined(const Value& value) { return is<Undefined>(value); }
bool is_none(const Value& value) { return is<None>(value); }
bool is_boolean(const Value& value) { return is<bool>(value); }
bool is_false(const Value& value) { return is<bool>(value) && !std::get<bool>(value); }
bool is_true(const Value& value) { return is<bool>(value) && std::get<bool>(value); }
bool is_integer(const Value& value) { return is<int64_t>(value); }
bool is_float(const Value& value) { return is<double>(value); }
bool is_string(const Value& value) { return is<Text>(value); }
bool is_mapping(const Value& value) { return is<DictPtr>(value); }
bool is_sequence(const Value& value) {
  const auto* list = std::get_if<ListPtr>(&value);
  return is<Undefined>(value) || is<Text>(value) || is<DictPtr>(value) ||
         (list != nullptr && (*list)->form != ListForm::kView);
}
bool is_escaped(const Value& value) { return is<Text>(value) && std::get<Text>(value).is_markup(); }

enum class Relation : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };
template <Relation relation>
Result<bool> compare(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const Value* right, other("the comparison", arguments));
  if (relation == Relation::kEqual || relation == Relation::kNotEqual) {
    TSR_ASSIGN_OR_RETURN(const bool same, are_equal(evaluator.budget(), value, *right));
    return same == (relation == Relation::kEqual);
  }
  TSR_ASSIGN_OR_RETURN(const int sign, order(evaluator.budget(), value, *right));
  return relation == Relation::kLess        ? sign < 0
         : relation == Relation::kLessEqual ? sign <= 0
         : relation == Relation::kGreater   ? sign > 0
                                            : sign >= 0;
}

constexpr TestEntry kTests[] = {
    {"defined", ask<is_defined>},
    {"undefined", ask<is_undefined>},
    {"none", ask<is_none>},
    {"boolean", ask<is_boolean>},
    {"false", ask<is_false>},
    {"true", ask<is_true>},
    {"integer", ask<is_integer>},
    {"float", ask<is_float>},
    {"number", ask<is_number>},
    {"string", ask<is_string>},
    {"mapping", ask<is_mapping>},
    {"sequence", ask<is_sequence>},
    {"iterable", ask<is_iterable>},
    {"callable", ask<is_callable>},
    {"escaped", ask<is_escaped>},
    {"odd", [](Evaluator& evaluator, const Value& value,
               const Arguments&) { return divides(evaluator, value, 2, 1); }},
    {"even", [](Evaluator& evaluator, const Value& value,
                const Arguments&) { return divides(evaluator, value, 2, 0); }},
    {"divisibleby",
     [](Evaluator& evaluator, const Value& value, const Arguments& arguments) -> Result<bool> {
       TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("divisibleby", {"num"}));
       TSR_ASSIGN_OR_RETURN(const int64_t by, bound.integer(0));
       return divides(evaluator, value, by, 0);
     }},
    {"lower", [](Evaluator& evaluator, const Value& value,
                 const Arguments&) { return has_case(evaluator, value, is_lower); }},
    {"upper", [](Evaluator& evaluator, const Value& value,
                 const Arguments&) { return has_case(evaluator, value, is_upper); }},
    {"sameas",
     [](Evaluator&, const Value& value, const Arguments& arguments) -> Result<bool> {
       TSR_ASSIGN_OR_RETURN(const Value* right, other("sameas", arguments));
       return is_same(value, *right);
     }},
    {"in",
     [](Evaluator& evaluator, const Value& value, const Arguments& arguments) -> Result<bool> {
       TSR_ASSIGN_OR_RETURN(const Value* container, other("in", arguments));
       return contains(evaluator.budget(), *container, value);
     }},
    {"filter",
     [](Evaluator&, const Value& value, const Arguments&) -> Result<bool> {
       return is<Text>(value) && find_filter(std::get<Text>(value).bytes()) != nullptr;
     }},
    {"test",
     [](Evaluator&, const Value& value, const Arguments&) -> Result<bool> {
       return is<Text>(value) && find_test(std::get<Text>(value).bytes()) != nullptr;
     }},
    {"==", compare<Relation::kEqual>},
    {"eq", compare<Relation::kEqual>},
    {"equalto", compare<Relation::kEqual>},
    {"!=", compare<Relation::kNotEqual>},
    {"ne", compare<Relation::kNotEqual>},
    {"<", compare<Relation::kLess>},
    {"lt", compare<Relation::kLess>},
    {"lessthan", compare<Relation::kLess>},
    {"<=", compare<Relation::kLessEqual>},
    {"le", compare<Relation::kLessEqual>},
    {">", compare<Relation::kGreater>},
    {"gt", compare<Relation::kGreater>},
    {"greaterthan", compare<Relation::kGreater>},
    {">=", compare<Relation::kGreaterEqual>},
    {"ge", compare<Relation::kGreaterEqual>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &TestEntry::name);
  return found == std::end(kTests) ? nullptr : found;
}

std::span<const TestEntry> all_tests() { return kTests; }

Status unknown_test(std::string_view name) {
  name = name.substr(0, kMostQuotedName);
  std::vector<std::string> names;
  for (const TestEntry& entry : kTests) names.emplace_back(entry.name);
  return Status(StatusCode::kUnsupported, format("the test '{}' is not known{}", name,
                                                 nearest_hint(name, names)));
}

}  // namespace tessera::jinja
