// Filters of lists, dicts and generators. Jinja2's generators are Iterators here.
#include <algorithm>
#include <functional>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// AttributePath: "a.b.0", nested attributes; absent: the item itself.
class AttributePath {
 public:
  AttributePath(Evaluator& evaluator, const Value* path) {
    if (path == nullptr || is<None>(*path)) return;
    const auto* text = std::get_if<Text>(path);
    if (text == nullptr) {
      parts_.push_back(*path);
      return;
    }
    status_ = evaluator.budget().spend(static_cast<int64_t>(text->size()));
    if (!status_.ok()) return;
    for (const std::string& part : split(text->bytes(), '.')) {
      const auto index = parse_i64(part);
      parts_.push_back(index && *index >= 0 ? Value(*index) : Value(Text::of(part)));
    }
  }
  // `initial`: replaces undefined values; may be null.
  Result<Value> get(Evaluator& evaluator, Value item, const Value* initial = nullptr) const {
    TSR_RETURN_IF_ERROR(status_);
    TSR_RETURN_IF_ERROR(evaluator.budget().spend());
    for (const Value& part : parts_) {
      TSR_RETURN_IF_ERROR(evaluator.budget().spend(2));
      TSR_ASSIGN_OR_RETURN(item, evaluator.get_item(item, part));
      if (is<Undefined>(item) && initial != nullptr) item = *initial;
    }
    return item;
  }

 private:
  Status status_;  // of the budget
  std::vector<Value> parts_;
};

// Lower-cases texts, unless case_sensitive.
Result<Value> fold(Evaluator& evaluator, Value value, bool case_sensitive) {
  const auto* text = std::get_if<Text>(&value);
  if (text == nullptr || case_sensitive) return value;
  TSR_ASSIGN_OR_RETURN(Text lower, change_case(evaluator.budget(), *text, CaseStyle::kLower));
  return Value(std::move(lower));
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Stable, as Python's sorted.
Result<std::vector<Keyed>> sorted(Evaluator& evaluator, std::vector<Keyed> items, bool reverse) {
  TSR_RETURN_IF_ERROR(evaluator.budget().spend_allocations(3 * items.size()));
  Status failure;
  const auto is_before = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size() && failure.ok(); ++i) {
      const Result<bool> same = are_equal(evaluator.budget(), a.keys[i], b.keys[i]);
      if (same.ok() && same.value()) continue;
      const Result<int> sign =
          same.ok() ? order(evaluator.budget(), a.keys[i], b.keys[i]) : Result<int>(same.status());
      if (!sign.ok()) failure = sign.status();
      return sign.ok() && (reverse ? sign.value() > 0 : sign.value() < 0);
    }
    return false;
  };
  std::ranges::stable_sort(items, is_before);
  TSR_RETURN_IF_ERROR(failure);
  return items;
}

Result<Value> filter_length(Evaluator&, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const int64_t length, length_of(value));
  return Value(length);
}

Result<Value> filter_default(Evaluator&, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("default", {"default_value", "boolean"}));
  if (!is<Undefined>(value) && !(bound.flag(1) && !is_truthy(value))) return value;
  return bound.has(0) ? bound.value(0) : Value(Text());
}

Result<Value> filter_list(Evaluator& evaluator, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  return make_list(evaluator.budget(), list->items);
}

Result<Value> filter_items(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (is<Undefined>(value)) return make_iterator(evaluator.budget(), {});
  const auto* dict = std::get_if<DictPtr>(&value);
  if (dict == nullptr) return fail(format("items wants a dict, found a {}", type_name(value)));
  std::vector<Value> items;
  for (const auto& [key, item] : (*dict)->items) {
    TSR_ASSIGN_OR_RETURN(Value pair, make_list(evaluator.budget(), {key, item}, ListForm::kTuple));
    items.push_back(std::move(pair));
  }
  return make_iterator(evaluator.budget(), std::move(items));
}

Result<Value> filter_first(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (const auto* iterator = std::get_if<std::shared_ptr<Iterator>>(&value)) {
    const std::vector<Value>& all = (*iterator)->list->items;
    if ((*iterator)->next < all.size()) return all[(*iterator)->next++];
    return undefined("there is no first item, the sequence is empty");
  }
  if (const auto* text = std::get_if<Text>(&value); text != nullptr && !text->empty())
    return evaluator.get_item(value, int64_t{0});
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  return list->items.empty() ? undefined("there is no first item, the sequence is empty")
                             : list->items.front();
}

Result<Value> filter_last(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (is<Undefined>(value)) return fail_undefined(value);
  if (is<std::shared_ptr<Iterator>>(value))
    return fail("last wants a list, found a generator: use |list first");
  if (const auto* text = std::get_if<Text>(&value); text != nullptr && !text->empty())
    return evaluator.get_item(value, int64_t{-1});
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  return list->items.empty() ? undefined("there is no last item, the sequence is empty") : list->items.back();
}

Result<Value> filter_join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("join", {"d", "attribute"}));
  Budget& budget = evaluator.budget();
  TSR_ASSIGN_OR_RETURN(const Text separator, print(budget, bound.has(0) ? bound.value(0) : Value(Text())));
  const AttributePath path(evaluator, bound.is_none(1) ? nullptr : &bound.value(1));
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(budget, value));
  TextBuilder out(budget);
  for (size_t i = 0; i < list->items.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(const Value item, path.get(evaluator, list->items[i]));
    TSR_ASSIGN_OR_RETURN(const Text text, print(budget, item));
    if (i > 0) TSR_RETURN_IF_ERROR(out.add(separator));
    TSR_RETURN_IF_ERROR(out.add(text));
  }
  TSR_ASSIGN_OR_RETURN(Text joined, out.finish());
  return Value(std::move(joined));
}

Result<Value> filter_reverse(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (is<Text>(value)) return take_slice(evaluator.budget(), value, None{}, None{}, int64_t{-1});
  if (is<Undefined>(value)) return fail_undefined(value);
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  return make_iterator(evaluator.budget(), std::vector<Value>(list->items.rbegin(), list->items.rend()));
}

Result<Value> filter_sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind("sort", {"reverse", "case_sensitive", "attribute"}));
  std::vector<AttributePath> paths;
  if (!bound.is_none(2) && is<Text>(bound.value(2))) {
    TSR_RETURN_IF_ERROR(evaluator.budget().spend(static_cast<int64_t>(std::get<Text>(bound.value(2)).size())));
    for (const std::string& part : split(std::get<Text>(bound.value(2)).bytes(), ',')) {
      const Value path = Text::of(part);
      paths.emplace_back(evaluator, &path);
    }
  } else {
    paths.emplace_back(evaluator, bound.has(2) ? &bound.value(2) : nullptr);
  }
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::vector<Keyed> items;
  for (const Value& item : list->items) {
    Keyed keyed{{}, item};
    for (const AttributePath& path : paths) {
      TSR_ASSIGN_OR_RETURN(Value key, path.get(evaluator, item));
      TSR_ASSIGN_OR_RETURN(key, fold(evaluator, std::move(key), bound.flag(1)));
      keyed.keys.push_back(std::move(key));
    }
    items.push_back(std::move(keyed));
  }
  TSR_ASSIGN_OR_RETURN(items, sorted(evaluator, std::move(items), bound.flag(0)));
  std::vector<Value> values;
  for (Keyed& keyed : items) values.push_back(std::move(keyed.item));
  return make_list(evaluator.budget(), std::move(values));
}

Result<Value> filter_dictsort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind("dictsort", {"case_sensitive", "by", "reverse"}));
  TSR_ASSIGN_OR_RETURN(const Text by, bound.text(1, Text::of("key")));
  if (by.bytes() != "key" && by.bytes() != "value")
    return fail(format("dictsort: by is '{}', wanted key or value", by.bytes()));
  if (is<Undefined>(value)) return fail_undefined(value);
  const auto* dict = std::get_if<DictPtr>(&value);
  if (dict == nullptr) return fail(format("dictsort wants a dict, found a {}", type_name(value)));
  std::vector<Keyed> items;
  for (const auto& [key, item] : (*dict)->items) {
    TSR_ASSIGN_OR_RETURN(Value sort_key, fold(evaluator, by.bytes() == "key" ? key : item, bound.flag(0)));
    TSR_ASSIGN_OR_RETURN(Value pair, make_list(evaluator.budget(), {key, item}, ListForm::kTuple));
    items.push_back({{std::move(sort_key)}, std::move(pair)});
  }
  TSR_ASSIGN_OR_RETURN(items, sorted(evaluator, std::move(items), bound.flag(2)));
  std::vector<Value> values;
  for (Keyed& keyed : items) values.push_back(std::move(keyed.item));
  return make_list(evaluator.budget(), std::move(values));
}

Result<Value> filter_unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("unique", {"case_sensitive", "attribute"}));
  const AttributePath path(evaluator, bound.has(1) ? &bound.value(1) : nullptr);
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::unordered_map<std::string, bool> seen;
  std::vector<Value> values;
  for (const Value& item : list->items) {
    TSR_ASSIGN_OR_RETURN(Value key, path.get(evaluator, item));
    TSR_ASSIGN_OR_RETURN(key, fold(evaluator, std::move(key), bound.flag(0)));
    TSR_ASSIGN_OR_RETURN(std::string hash, hash_key(key));
    TSR_RETURN_IF_ERROR(evaluator.budget().spend_bytes(hash.size()));
    TSR_RETURN_IF_ERROR(evaluator.budget().spend_allocations(7));  // for its entry among those seen
    if (seen.emplace(std::move(hash), true).second) values.push_back(item);
  }
  return make_iterator(evaluator.budget(), std::move(values));
}

template <bool wants_most>
Result<Value> filter_extreme(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind(wants_most ? "max" : "min", {"case_sensitive", "attribute"}));
  const AttributePath path(evaluator, bound.has(1) ? &bound.value(1) : nullptr);
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  if (list->items.empty()) return undefined("there is no such item, the sequence is empty");
  Value best, best_key;
  for (size_t i = 0; i < list->items.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(Value key, path.get(evaluator, list->items[i]));
    TSR_ASSIGN_OR_RETURN(key, fold(evaluator, std::move(key), bound.flag(0)));
    if (i > 0) {
      TSR_ASSIGN_OR_RETURN(const int sign, order(evaluator.budget(), key, best_key));
      if (wants_most ? sign <= 0 : sign >= 0) continue;
    }
    best = list->items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> filter_sum(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("sum", {"attribute", "start"}));
  const AttributePath path(evaluator, bound.has(0) ? &bound.value(0) : nullptr);
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  Value total = bound.has(1) ? bound.value(1) : Value(int64_t{0});
  if (is<Text>(total)) return fail("sum adds no texts: use join");
  for (const Value& item : list->items) {
    TSR_ASSIGN_OR_RETURN(const Value each, path.get(evaluator, item));
    TSR_ASSIGN_OR_RETURN(total, apply_binary(evaluator.budget(), Operation::kAdd, total, each));
  }
  return total;
}

Result<Value> filter_batch(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("batch", {"linecount", "fill_with"}));
  TSR_ASSIGN_OR_RETURN(const int64_t size, bound.integer(0));
  if (size < 1 || size > 1'000'000) return fail(format("batch: linecount is {}, wanted 1 to 1000000", size));
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < list->items.size(); begin += static_cast<size_t>(size)) {
    const size_t end = std::min(begin + static_cast<size_t>(size), list->items.size());
    std::vector<Value> batch(list->items.begin() + static_cast<ptrdiff_t>(begin),
                             list->items.begin() + static_cast<ptrdiff_t>(end));
    if (!bound.is_none(1)) batch.resize(static_cast<size_t>(size), bound.value(1));
    TSR_ASSIGN_OR_RETURN(Value made, make_list(evaluator.budget(), std::move(batch)));
    batches.push_back(std::move(made));
  }
  return make_iterator(evaluator.budget(), std::move(batches));
}

Result<Value> filter_slice(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("slice", {"slices", "fill_with"}));
  TSR_ASSIGN_OR_RETURN(const int64_t wanted, bound.integer(0));
  if (wanted < 1 || wanted > 100'000) return fail(format("slice: slices is {}, wanted 1 to 100000", wanted));
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  const auto count = static_cast<size_t>(wanted), each = list->items.size() / count,
             longer = list->items.size() % count;
  std::vector<Value> slices;
  auto from = list->items.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto to = from + static_cast<ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> part(from, to);
    if (!bound.is_none(1) && i >= longer) part.push_back(bound.value(1));
    TSR_ASSIGN_OR_RETURN(Value made, make_list(evaluator.budget(), std::move(part)));
    slices.push_back(std::move(made));
    from = to;
  }
  return make_iterator(evaluator.budget(), std::move(slices));
}

// Pairs of a value and its items, sorted by value.
Result<Value> filter_groupby(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind("groupby", {"attribute", "default", "case_sensitive"}));
  TSR_ASSIGN_OR_RETURN(const Value* attribute, bound.required(0));
  const AttributePath path(evaluator, attribute);
  const Value* initial = bound.is_none(1) ? nullptr : &bound.value(1);
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::vector<Keyed> items;
  for (const Value& item : list->items) {
    TSR_ASSIGN_OR_RETURN(Value key, path.get(evaluator, item, initial));
    TSR_ASSIGN_OR_RETURN(key, fold(evaluator, std::move(key), bound.flag(2)));
    items.push_back({{std::move(key)}, item});
  }
  TSR_ASSIGN_OR_RETURN(items, sorted(evaluator, std::move(items), false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<Value> group;
    size_t end = begin;
    for (; end < items.size(); ++end) {
      TSR_ASSIGN_OR_RETURN(const bool same,
                           are_equal(evaluator.budget(), items[begin].keys[0], items[end].keys[0]));
      if (!same) break;
      group.push_back(items[end].item);
    }
    TSR_ASSIGN_OR_RETURN(Value grouper, path.get(evaluator, items[begin].item, initial));
    TSR_ASSIGN_OR_RETURN(Value members, make_list(evaluator.budget(), std::move(group)));
    TSR_ASSIGN_OR_RETURN(Value pair, make_list(evaluator.budget(), {std::move(grouper), std::move(members)},
                                               ListForm::kTuple));
    groups.push_back(std::move(pair));
    begin = end;
  }
  return make_list(evaluator.budget(), std::move(groups));
}

Result<Value> filter_map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!is_truthy(value)) return make_iterator(evaluator.budget(), {});
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::vector<Value> values;
  if (arguments.positional.empty()) {
    TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("map", {"attribute", "default"}));
    TSR_ASSIGN_OR_RETURN(const Value* attribute, bound.required(0));
    const AttributePath path(evaluator, attribute);
    for (const Value& item : list->items) {
      TSR_ASSIGN_OR_RETURN(Value mapped,
                           path.get(evaluator, item, bound.is_none(1) ? nullptr : &bound.value(1)));
      values.push_back(std::move(mapped));
    }
    return make_iterator(evaluator.budget(), std::move(values));
  }
  const auto* name = std::get_if<Text>(&arguments.positional[0]);
  if (name == nullptr) return fail("map wants the name of a filter");
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : list->items) {
    TSR_RETURN_IF_ERROR(evaluator.budget().spend());
    TSR_ASSIGN_OR_RETURN(Value mapped, evaluator.apply_filter(name->bytes(), item, rest));
    values.push_back(std::move(mapped));
  }
  return make_iterator(evaluator.budget(), std::move(values));
}

template <bool by_attribute, bool wanted>
Result<Value> filter_choose(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!is_truthy(value)) return make_iterator(evaluator.budget(), {});
  constexpr size_t kTestAt = by_attribute ? 1 : 0;
  if (arguments.positional.size() < kTestAt)
    return fail("selectattr and rejectattr want the name of an attribute");
  const AttributePath path(evaluator, by_attribute ? &arguments.positional[0] : nullptr);
  const bool has_test = arguments.positional.size() > kTestAt;
  Text test;
  Arguments rest;
  if (has_test) {
    const auto* name = std::get_if<Text>(&arguments.positional[kTestAt]);
    if (name == nullptr) return fail("select and reject want the name of a test");
    test = *name;
    rest = {{arguments.positional.begin() + kTestAt + 1, arguments.positional.end()}, arguments.named};
  }
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(evaluator.budget(), value));
  std::vector<Value> values;
  for (const Value& item : list->items) {
    TSR_RETURN_IF_ERROR(evaluator.budget().spend());
    TSR_ASSIGN_OR_RETURN(const Value held, path.get(evaluator, item));
    bool holds = is_truthy(held);
    if (has_test) {
      TSR_ASSIGN_OR_RETURN(holds, evaluator.apply_test(test.bytes(), held, rest));
    }
    if (holds == wanted) values.push_back(item);
  }
  return make_iterator(evaluator.budget(), std::move(values));
}

Result<Value> filter_attr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("attr", {"name"}));
  TSR_ASSIGN_OR_RETURN(const Text name, bound.text(0));
  if (is<DictPtr>(value) && !has_container_method(value, name.bytes()) &&
      !is_mutating_method(value, name.bytes()))
    return undefined(format("a dict has no attribute '{}'", name.bytes()));
  return evaluator.get_attribute(value, name.bytes());
}

constexpr FilterEntry kFilters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"default", filter_default},
    {"d", filter_default},
    {"list", filter_list},
    {"items", filter_items},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"min", filter_extreme<false>},
    {"max", filter_extreme<true>},
    {"sum", filter_sum},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"groupby", filter_groupby},
    {"map", filter_map},
    {"select", filter_choose<false, true>},
    {"reject", filter_choose<false, false>},
    {"selectattr", filter_choose<true, true>},
    {"rejectattr", filter_choose<true, false>},
    {"attr", filter_attr},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace tessera::jinja
