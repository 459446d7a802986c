#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy", "fromkeys"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Result<Value> call_dict(Budget& budget, const Value& self, std::string_view name,
                        const Arguments& arguments) {
  const Dict& dict = *std::get<DictPtr>(self);
  if (name == "get") {
    TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("dict.get", {"key", "default"}));
    TSR_ASSIGN_OR_RETURN(const Value* key, bound.required(0));
    if (!is<Undefined>(*key)) {
      TSR_ASSIGN_OR_RETURN(const Value* found, dict.find(budget, *key));
      if (found != nullptr) return *found;
    }
    return bound.has(1) ? bound.value(1) : Value(None{});
  }
  TSR_ASSIGN_OR_RETURN(const BoundArguments none, arguments.bind(name, {}));
  if (name == "copy") return self;
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "items") {
      TSR_ASSIGN_OR_RETURN(Value pair, make_list(budget, {key, value}, ListForm::kTuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  return make_list(budget, std::move(items), ListForm::kView);
}

Result<Value> call_list(Budget& budget, const Value& self, std::string_view name,
                        const Arguments& arguments) {
  if (name == "copy") return self;
  const List& list = *std::get<ListPtr>(self);
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind(name, {"value"}));
  TSR_ASSIGN_OR_RETURN(const Value* wanted, bound.required(0));
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget, list.items[i], *wanted));
    if (same && name == "index") return Value(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return fail("list.index: the value is not in the list");
  return Value(count);
}

}  // namespace

std::vector<std::string> container_method_names() {
  std::vector<std::string> names;
  for (const std::string_view name : kDictMethods) names.push_back(format("dict.{}", name));
  for (const std::string_view name : kListMethods) names.push_back(format("list.{}", name));
  return names;
}

bool has_container_method(const Value& value, std::string_view name) {
  if (is<DictPtr>(value)) return is_among(kDictMethods, name);
  const auto* list = std::get_if<ListPtr>(&value);
  if (list == nullptr || (*list)->form == ListForm::kView) return false;
  return is_among(kListMethods, name) && (name != "copy" || (*list)->form == ListForm::kList);
}

bool is_mutating_method(const Value& value, std::string_view name) {
  if (is<DictPtr>(value)) return is_among(kDictMutators, name);
  const auto* list = std::get_if<ListPtr>(&value);
  return list != nullptr && (*list)->form == ListForm::kList && is_among(kListMutators, name);
}

Result<Value> call_container_method(Budget& budget, const Value& value, std::string_view name,
                                    const Arguments& arguments) {
  if (name == "fromkeys") return Status(StatusCode::kUnsupported, "dict.fromkeys is not supported");
  return is<DictPtr>(value) ? call_dict(budget, value, name, arguments)
                            : call_list(budget, value, name, arguments);
}

}  // namespace tessera::jinja
