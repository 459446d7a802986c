#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"

namespace tessera::jinja {
namespace {

Value absent(const Value& value, std::string_view name) {
  return undefined(format("a {} has no attribute '{}'", type_name(value), name));
}

bool is_loop_method(std::string_view name) { return name == "cycle" || name == "changed"; }

Value loop_attribute(const Loop& loop, const Value& self, std::string_view name) {
  const auto& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index0), length = static_cast<int64_t>(items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem") return index == 0 ? undefined("there is no previous item") : items[loop.index0 - 1];
  if (name == "nextitem")
    return index + 1 >= length ? undefined("there is no next item") : items[loop.index0 + 1];
  return absent(self, name);
}

}  // namespace

Result<Value> Evaluator::get_attribute(const Value& value, std::string_view name) {
  if (is<Undefined>(value)) return fail_undefined(value);
  TSR_RETURN_IF_ERROR(budget_.spend(static_cast<int64_t>(name.size() / 32)));
  if (!is<DictPtr>(value)) TSR_RETURN_IF_ERROR(budget_.spend());
  if (const auto* space = std::get_if<std::shared_ptr<Namespace>>(&value)) {
    TSR_ASSIGN_OR_RETURN(const Value* found, find_variable(**space, name));
    return found != nullptr ? *found : absent(value, name);
  }
  if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&value))
    return is_loop_method(name) ? make_method(value, name) : loop_attribute(**loop, value, name);
  if (const auto* macro = std::get_if<std::shared_ptr<const Macro>>(&value))
    return name == "name" ? Value(Text::of((*macro)->node->name)) : absent(value, name);
  if (is<Text>(value)) return has_text_method(name) ? make_method(value, name) : absent(value, name);
  if (is_mutating_method(value, name))
    return undefined(
        format("'{}' would change a {}, which the sandbox of templates forbids", name, type_name(value)));
  if (has_container_method(value, name)) return make_method(value, name);
  if (const auto* dict = std::get_if<DictPtr>(&value))
    if (const Value* found = (*dict)->find(name)) return *found;
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(1));
  return absent(value, name);
}

Result<Value> Evaluator::get_item(const Value& value, const Value& key) {
  if (is<Undefined>(value)) return fail_undefined(value);
  const auto index = as_integer(key);
  if (const auto* text = std::get_if<Text>(&value); text != nullptr && index) {
    const int64_t at = *index < 0 ? *index + text->length() : *index;
    if (at < 0 || at >= text->length()) return undefined(format("a str has no character {}", *index));
    const size_t begin = text->byte_of(at);
    size_t size = 0;
    (void)code_point_at(text->bytes(), begin, size);
    TSR_RETURN_IF_ERROR(budget_.spend_bytes(text->is_ascii() ? 0 : begin));
    TSR_ASSIGN_OR_RETURN(Text character, slice(budget_, *text, begin, begin + size));
    return Value(std::move(character));
  }
  if (const auto* list = std::get_if<ListPtr>(&value);
      list != nullptr && index && (*list)->form != ListForm::kView) {
    const auto length = static_cast<int64_t>((*list)->items.size());
    const int64_t at = *index < 0 ? *index + length : *index;
    if (at < 0 || at >= length) return undefined(format("a {} has no item {}", type_name(value), *index));
    return (*list)->items[static_cast<size_t>(at)];
  }
  if (const auto* dict = std::get_if<DictPtr>(&value)) {
    const Result<const Value*> found = (*dict)->find(budget_, key);
    if (found.ok() && found.value() != nullptr) return *found.value();
    const auto* name = std::get_if<Text>(&key);
    if (name == nullptr) return undefined(format("a dict lacks a key that is a {}", type_name(key)));
  }
  if (const auto* name = std::get_if<Text>(&key)) return get_attribute(value, name->bytes());
  return undefined(format("a {} has no items by {}", type_name(value), type_name(key)));
}

}  // namespace tessera::jinja
