// Value: the result of a template expression, with Python's types and semantics. Lists
// and dicts are immutable, as in the sandbox of chat templates; only namespaces change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "graph/base/result.h"
#include "text/jinja/budget.h"
#include "text/jinja/text.h"

namespace tessera::jinja {

struct Node;
struct Scope;
struct List;
struct Dict;
struct Iterator;
struct Namespace;
struct Loop;
struct Macro;
struct Method;

struct None {};
// Prints as empty; most other uses are an error with the message `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
// Functions visible to every template.
enum class Builtin : uint8_t {
  kRange,
  kDict,
  kNamespace,
  kRaiseException,
  kStrftimeNow,
  kCycler,
  kJoiner,
  kLipsum
};

using Value =
    std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                 std::shared_ptr<const Dict>, std::shared_ptr<Iterator>, std::shared_ptr<Namespace>,
                 std::shared_ptr<Loop>, std::shared_ptr<const Macro>, std::shared_ptr<const Method>, Builtin>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;

enum class ListForm : uint8_t { kList, kTuple, kRange, kView };  // kView: of a dict, without indices

struct List {
  std::vector<Value> items;
  ListForm form = ListForm::kList;
  int depth = 1;
  Source source = kTemplate;
  Lease lease;
};

// Keys in insertion order.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, size_t> index;  // by hash_key; empty for few items
  int depth = 1;
  Source source = kTemplate;
  Lease lease;

  // Null if absent.
  const Value* find(std::string_view key) const;
  Result<const Value*> find(Budget& budget, const Value& key) const;
};

// Iterator: a Python generator: read once, without length or indices.
struct Iterator {
  ListPtr list;
  size_t next = 0;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> variables;
  Lease lease;
  Value* find(std::string_view name, size_t& compared);  // counts the compared names
};

// The variable `loop`.
struct Loop {
  ListPtr items;
  size_t index0 = 0;
  int64_t depth0 = 0;
  const Node* recursive = nullptr;  // the `for`, if recursive
  std::shared_ptr<Scope> scope;     // enclosing scope
  std::vector<Value> changed;       // arguments of the last loop.changed
  bool has_changed = false;
  int depth = 1;
};

struct Macro {
  const Node* node = nullptr;
  std::shared_ptr<Scope> scope;  // scope of definition
};

// Method: a function bound to a value: "text.strip", "loop.cycle".
struct Method {
  Value self;
  std::string name;
  int depth = 1;
};

// ---- queries

inline Value undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}
template <class T>
bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}
inline bool is_number(const Value& value) {
  return is<bool>(value) || is<int64_t>(value) || is<double>(value);
}
// Integers, with True and False as 1 and 0.
std::optional<int64_t> as_integer(const Value& value);
std::optional<double> as_real(const Value& value);  // any number
bool is_callable(const Value& value);
bool is_truthy(const Value& value);
// Python's name of its type.
std::string_view type_name(const Value& value);
// Nesting depth of lists and dicts.
int depth_of(const Value& value);
// Common source of all its texts.
Source source_of(const Value& value);
// An error for an undefined value, with its reason.
Status fail_undefined(const Value& value);

// ---- makers; errors for too deep values and exceeded budgets

Result<Value> make_list(Budget& budget, std::vector<Value> items, ListForm form = ListForm::kList);
Result<Value> make_iterator(Budget& budget, std::vector<Value> items);
// The last value of a key counts, at the first one's place.
Result<Value> make_dict(Budget& budget, std::vector<std::pair<Value, Value>> items);
Result<Value> make_method(const Value& self, std::string_view name);

// ---- Python's relations

// A text equal for equal keys; an error for unhashable values.
Result<std::string> hash_key(const Value& value);
Result<bool> are_equal(Budget& budget, const Value& a, const Value& b);
// Negative, 0 or positive; an error for unordered types.
Result<int> order(Budget& budget, const Value& a, const Value& b);
Result<bool> contains(Budget& budget, const Value& container, const Value& item);

// ---- sequences

bool is_iterable(const Value& value);
// len(): an error for values without a length.
Result<int64_t> length_of(const Value& value);
// The items of a loop over the value; empties an iterator.
Result<ListPtr> iterate(Budget& budget, const Value& value);

}  // namespace tessera::jinja
