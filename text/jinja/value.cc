#include "text/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "graph/base/text.h"
#include "text/jinja/text_parts.h"

namespace tessera::jinja {
namespace {

constexpr int kMostValueDepth = 100;
constexpr size_t kFewItems = 8;

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

Result<int> deeper(int depth) {
  if (depth > kMostValueDepth) return fail(format("values nest deeper than {}", kMostValueDepth));
  return depth;
}

template <class T>
const T* pointer(const Value& value) {
  const auto* held = std::get_if<std::shared_ptr<T>>(&value);
  return held != nullptr ? held->get() : nullptr;
}

int order_numbers(const Value& a, const Value& b) {
  // Long doubles hold 64-bit integers exactly.
  const auto number = [](const Value& value) -> long double {
    if (const auto integer = as_integer(value)) return static_cast<long double>(*integer);
    return static_cast<long double>(std::get<double>(value));
  };
  const long double left = number(a), right = number(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

bool is_nan(const Value& value) { return is<double>(value) && std::isnan(std::get<double>(value)); }

const List* ordered_list(const Value& value) {
  const auto* list = pointer<const List>(value);
  return list != nullptr && list->form <= ListForm::kTuple ? list : nullptr;
}

}  // namespace

std::optional<int64_t> as_integer(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  return {};
}

std::optional<double> as_real(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return {};
}

bool is_callable(const Value& value) {
  const auto* loop = std::get_if<std::shared_ptr<Loop>>(&value);
  return is<std::shared_ptr<const Macro>>(value) || is<std::shared_ptr<const Method>>(value) ||
         is<Builtin>(value) || loop != nullptr;
}

bool is_truthy(const Value& value) {
  if (is<Undefined>(value) || is<None>(value)) return false;
  if (is_number(value)) return *as_real(value) != 0;
  if (const auto* text = std::get_if<Text>(&value)) return !text->empty();
  if (const auto* list = pointer<const List>(value)) return !list->items.empty();
  if (const auto* dict = pointer<const Dict>(value)) return !dict->items.empty();
  return true;
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool",   "int",       "float",
                                         "str",       "list",     "dict",   "generator", "Namespace",
                                         "Loop",      "Macro",    "method", "function"};
  static_assert(std::size(kNames) == std::variant_size_v<Value>);
  constexpr std::string_view kLists[] = {"list", "tuple", "range", "dict view"};
  if (const auto* list = pointer<const List>(value)) return kLists[static_cast<size_t>(list->form)];
  return kNames[value.index()];
}

int depth_of(const Value& value) {
  if (const auto* list = pointer<const List>(value)) return list->depth;
  if (const auto* dict = pointer<const Dict>(value)) return dict->depth;
  if (const auto* iterator = pointer<Iterator>(value)) return iterator->list->depth;
  if (const auto* loop = pointer<Loop>(value)) return loop->depth;
  if (const auto* method = pointer<const Method>(value)) return method->depth;
  return 0;
}

Source source_of(const Value& value) {
  if (const auto* text = std::get_if<Text>(&value)) return text->source();
  if (const auto* list = pointer<const List>(value)) return list->source;
  if (const auto* dict = pointer<const Dict>(value)) return dict->source;
  return kTemplate;
}

Status fail_undefined(const Value& value) {
  const auto& why = std::get<Undefined>(value).why;
  return fail(why ? *why : "the value is undefined");
}

Result<Value> make_list(Budget& budget, std::vector<Value> items, ListForm form) {
  auto list = std::make_shared<List>();
  int depth = 0;
  for (const Value& item : items) {
    depth = std::max(depth, depth_of(item));
    list->source = join_sources(list->source, source_of(item));
  }
  TSR_ASSIGN_OR_RETURN(list->depth, deeper(depth + 1));
  TSR_RETURN_IF_ERROR(budget.spend(static_cast<int64_t>(items.size()) + 2));
  TSR_ASSIGN_OR_RETURN(list->lease, budget.lease(items.capacity() * sizeof(Value) + 96));
  list->items = std::move(items);
  list->form = form;
  return Value(ListPtr(std::move(list)));
}

Result<Value> make_iterator(Budget& budget, std::vector<Value> items) {
  TSR_ASSIGN_OR_RETURN(Value list, make_list(budget, std::move(items)));
  return Value(std::make_shared<Iterator>(Iterator{std::get<ListPtr>(std::move(list)), 0}));
}

Result<Value> make_dict(Budget& budget, std::vector<std::pair<Value, Value>> items) {
  auto dict = std::make_shared<Dict>();
  TSR_RETURN_IF_ERROR(budget.spend_allocations(items.size() * 3 / 2 + 1));  // keys and their places
  TSR_ASSIGN_OR_RETURN(dict->lease, budget.lease(items.capacity() * 2 * sizeof(Value) + 160));
  size_t key_bytes = 0;
  int depth = 0;
  std::unordered_map<std::string, size_t> index;
  for (auto& [key, value] : items) {
    depth = std::max({depth, depth_of(key), depth_of(value)});
    dict->source = join_sources(dict->source, join_sources(source_of(key), source_of(value)));
    TSR_ASSIGN_OR_RETURN(std::string hash, hash_key(key));
    TSR_RETURN_IF_ERROR(is<ListPtr>(key) ? budget.spend_characters(hash.size()) : budget.spend_bytes(hash.size()));
    key_bytes += hash.size() + 64;
    const auto [place, is_new] = index.emplace(std::move(hash), dict->items.size());
    if (is_new)
      dict->items.emplace_back(std::move(key), std::move(value));
    else
      dict->items[place->second].second = std::move(value);
  }
  TSR_ASSIGN_OR_RETURN(dict->depth, deeper(depth + 1));
  if (dict->items.size() > kFewItems) {
    TSR_ASSIGN_OR_RETURN(Lease keys, budget.lease(key_bytes));
    dict->lease.add(std::move(keys));
    dict->index = std::move(index);
  }
  return Value(DictPtr(std::move(dict)));
}

Result<Value> make_method(const Value& self, std::string_view name) {
  auto method = std::make_shared<Method>(Method{self, std::string(name), 1});
  TSR_ASSIGN_OR_RETURN(method->depth, deeper(depth_of(self) + 1));
  return Value(std::shared_ptr<const Method>(std::move(method)));
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find("s" + std::string(key));
    return found == index.end() ? nullptr : &items[found->second].second;
  }
  for (const auto& [name, value] : items)
    if (const auto* text = std::get_if<Text>(&name); text != nullptr && text->bytes() == key) return &value;
  return nullptr;
}

Result<const Value*> Dict::find(Budget& budget, const Value& key) const {
  if (const auto* text = std::get_if<Text>(&key)) {
    TSR_RETURN_IF_ERROR(budget.spend_bytes(text->size()));
    if (!index.empty()) TSR_RETURN_IF_ERROR(budget.spend(2));
    return find(text->bytes());
  }
  TSR_RETURN_IF_ERROR(budget.spend(static_cast<int64_t>(items.size())));
  TSR_ASSIGN_OR_RETURN(const std::string wanted, hash_key(key));
  for (const auto& [name, value] : items) {
    if (is<Text>(name)) continue;
    TSR_ASSIGN_OR_RETURN(const std::string hash, hash_key(name));
    if (hash == wanted) return &value;
  }
  return static_cast<const Value*>(nullptr);
}

Value* Namespace::find(std::string_view name, size_t& compared) {
  for (auto& [key, value] : variables) {
    ++compared;
    if (key == name) return &value;
  }
  return nullptr;
}

namespace {
constexpr size_t kMostKeyBytes = 4096;  // of tuples
}

Result<std::string> hash_key(const Value& value) {
  if (const auto* text = std::get_if<Text>(&value)) return "s" + std::string(text->bytes());
  if (const auto integer = as_integer(value)) return "n" + to_text(*integer);
  if (const auto* real = std::get_if<double>(&value)) {
    const bool whole = *real == std::floor(*real) && std::abs(*real) < 9.2e18;
    return "n" + (whole ? to_text(static_cast<int64_t>(*real)) : to_text(*real));
  }
  if (is<None>(value)) return std::string("0");
  if (const auto* list = pointer<const List>(value); list != nullptr && list->form == ListForm::kTuple) {
    std::string key = "(";
    for (const Value& item : list->items) {
      TSR_ASSIGN_OR_RETURN(const std::string part, hash_key(item));
      key += to_text(static_cast<uint64_t>(part.size())) + ":" + part;
      if (key.size() > kMostKeyBytes) return fail("a tuple that is a key is too large");
    }
    return key;
  }
  if (is<Undefined>(value)) return fail_undefined(value);
  return fail(format("a {} cannot be a key", type_name(value)));
}

Result<bool> are_equal(Budget& budget, const Value& a, const Value& b) {
  TSR_RETURN_IF_ERROR(budget.spend());
  if (is_number(a) && is_number(b)) return !is_nan(a) && !is_nan(b) && order_numbers(a, b) == 0;
  if (a.index() != b.index()) return false;
  if (is<Undefined>(a) || is<None>(a)) return true;
  if (const auto* text = std::get_if<Text>(&a)) {
    TSR_RETURN_IF_ERROR(budget.spend_bytes(text->size()));
    return text->bytes() == std::get<Text>(b).bytes();
  }
  if (const auto* left = pointer<const List>(a)) {
    const auto* right = pointer<const List>(b);
    if (left == right) return true;
    if (left->form != right->form || left->form == ListForm::kView ||
        left->items.size() != right->items.size())
      return false;
    for (size_t i = 0; i < left->items.size(); ++i) {
      TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget, left->items[i], right->items[i]));
      if (!same) return false;
    }
    return true;
  }
  if (const auto* left = pointer<const Dict>(a)) {
    const auto* right = pointer<const Dict>(b);
    if (left == right) return true;
    if (left->items.size() != right->items.size()) return false;
    for (const auto& [key, value] : left->items) {
      TSR_ASSIGN_OR_RETURN(const Value* other, right->find(budget, key));
      if (other == nullptr) return false;
      TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget, value, *other));
      if (!same) return false;
    }
    return true;
  }
  if (const auto* builtin = std::get_if<Builtin>(&a)) return *builtin == std::get<Builtin>(b);
  return std::visit(
      [&b]<class T>(const T& held) {
        if constexpr (requires { held.get(); })
          return held.get() == std::get<T>(b).get();
        else
          return false;
      },
      a);
}

Result<int> order(Budget& budget, const Value& a, const Value& b) {
  TSR_RETURN_IF_ERROR(budget.spend());
  if (is_number(a) && is_number(b)) return order_numbers(a, b);
  if (is<Undefined>(a)) return fail_undefined(a);
  if (is<Undefined>(b)) return fail_undefined(b);
  if (is<Text>(a) && is<Text>(b)) {
    TSR_RETURN_IF_ERROR(budget.spend_bytes(std::get<Text>(a).size()));
    return std::get<Text>(a).bytes().compare(std::get<Text>(b).bytes());
  }
  const List *left = ordered_list(a), *right = ordered_list(b);
  if (left != nullptr && right != nullptr && left->form == right->form) {
    const size_t both = std::min(left->items.size(), right->items.size());
    for (size_t i = 0; i < both; ++i) {
      TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget, left->items[i], right->items[i]));
      if (!same) return order(budget, left->items[i], right->items[i]);
    }
    return left->items.size() < right->items.size() ? -1 : left->items.size() > right->items.size() ? 1 : 0;
  }
  return fail(format("there is no order between a {} and a {}", type_name(a), type_name(b)));
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  if (const auto* text = std::get_if<Text>(&container)) {
    const auto* part = std::get_if<Text>(&item);
    if (part == nullptr)
      return fail(format("'in' a str wants a str on its left, found a {}", type_name(item)));
    TSR_RETURN_IF_ERROR(budget.spend_characters(text->size() + part->size()));
    return find_first(text->bytes(), part->bytes()) != std::string_view::npos;
  }
  if (const auto* dict = pointer<const Dict>(container)) {
    TSR_ASSIGN_OR_RETURN(const Value* found, dict->find(budget, item));
    return found != nullptr;
  }
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(budget, container));
  for (const Value& each : list->items) {
    TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget, each, item));
    if (same) return true;
  }
  return false;
}

bool is_iterable(const Value& value) {
  return is<Undefined>(value) || is<Text>(value) || is<ListPtr>(value) || is<DictPtr>(value) ||
         is<std::shared_ptr<Iterator>>(value) || is<std::shared_ptr<Loop>>(value);
}

Result<int64_t> length_of(const Value& value) {
  if (is<Undefined>(value)) return 0;
  if (const auto* text = std::get_if<Text>(&value)) return text->length();
  if (const auto* list = pointer<const List>(value)) return static_cast<int64_t>(list->items.size());
  if (const auto* dict = pointer<const Dict>(value)) return static_cast<int64_t>(dict->items.size());
  if (const auto* loop = pointer<Loop>(value)) return static_cast<int64_t>(loop->items->items.size());
  return fail(format("a {} has no length", type_name(value)));
}

Result<ListPtr> iterate(Budget& budget, const Value& value) {
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    TSR_RETURN_IF_ERROR(budget.spend_items((*list)->items.size()));
    return *list;
  }
  std::vector<Value> items;
  if (const auto* text = std::get_if<Text>(&value)) {
    const auto count = static_cast<size_t>(text->length());
    TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(count * sizeof(Value)));
    items.reserve(count);
    // Equal ASCII characters of a run share one text.
    std::array<Text, 128> made;
    size_t run = 0;
    for (size_t at = 0, size = 0; at < text->size(); at += size) {
      const uint32_t code = code_point_at(text->bytes(), at, size);
      if (text->runs()[run].end <= at) {
        ++run;
        made.fill(Text());
      }
      if (code < made.size() && !made[code].empty()) {
        items.emplace_back(made[code]);
        continue;
      }
      TSR_RETURN_IF_ERROR(budget.spend_allocations(1));
      TSR_ASSIGN_OR_RETURN(Text character, slice(budget, *text, at, at + size));
      if (code < made.size()) made[code] = character;
      items.emplace_back(std::move(character));
    }
  } else if (const auto* dict = pointer<const Dict>(value)) {
    for (const auto& [key, unused] : dict->items) items.push_back(key);
  } else if (const auto* iterator = std::get_if<std::shared_ptr<Iterator>>(&value)) {
    const std::vector<Value>& all = (*iterator)->list->items;
    items.assign(all.begin() + static_cast<ptrdiff_t>((*iterator)->next), all.end());
    (*iterator)->next = all.size();
  } else if (!is<Undefined>(value)) {
    return fail(format("a {} cannot be iterated over", type_name(value)));
  }
  TSR_ASSIGN_OR_RETURN(Value list, make_list(budget, std::move(items)));
  return std::get<ListPtr>(std::move(list));
}

}  // namespace tessera::jinja
