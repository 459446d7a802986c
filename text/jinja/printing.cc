#include "text/jinja/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "graph/base/text.h"
#include "text/jinja/unicode.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

std::string hex(uint32_t code, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[code >> shift & 15];
  return out;
}

// Runs `escape(out, code)` over a text's characters, which keep their origin.
template <class Escape>
Status add_escaped(TextBuilder& out, const Text& text, Escape escape) {
  TSR_RETURN_IF_ERROR(out.budget().spend_characters(text.size()));
  std::string piece;
  size_t run = 0;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    const uint32_t code = code_point_at(text.bytes(), at, size);
    if (text.runs()[run].end <= at) {
      TSR_RETURN_IF_ERROR(out.add(piece, text.runs()[run].origin));
      piece.clear();
      ++run;
    }
    escape(piece, code);
  }
  return text.empty() ? Status() : out.add(piece, text.runs()[run].origin);
}

Status add_quoted_text(TextBuilder& out, const Text& text, Source source) {
  const bool single =
      text.bytes().find('\'') == std::string_view::npos || text.bytes().find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  const std::string_view mark(&quote, 1);
  TSR_RETURN_IF_ERROR(out.add(mark, source));
  TSR_RETURN_IF_ERROR(add_escaped(out, text, [quote](std::string& piece, uint32_t code) {
    if (code == static_cast<unsigned char>(quote) || code == '\\')
      (piece += '\\') += static_cast<char>(code);
    else if (code == '\n')
      piece += "\\n";
    else if (code == '\r')
      piece += "\\r";
    else if (code == '\t')
      piece += "\\t";
    else if (is_printable(code))
      append_utf8(piece, code);
    else
      piece += code < 0x100     ? "\\x" + hex(code, 2)
               : code < 0x10000 ? "\\u" + hex(code, 4)
                                : "\\U" + hex(code, 8);
  }));
  return out.add(mark, source);
}

Status add_json_text(TextBuilder& out, const Text& text, bool ensure_ascii, Source source) {
  TSR_RETURN_IF_ERROR(out.add("\"", source));
  TSR_RETURN_IF_ERROR(add_escaped(out, text, [ensure_ascii](std::string& piece, uint32_t code) {
    switch (code) {
      case '"': piece += "\\\""; return;
      case '\\': piece += "\\\\"; return;
      case '\n': piece += "\\n"; return;
      case '\r': piece += "\\r"; return;
      case '\t': piece += "\\t"; return;
      case '\f': piece += "\\f"; return;
      case '\b': piece += "\\b"; return;
      default: break;
    }
    if (code < 0x20 || (ensure_ascii && code >= 0x7f && code < 0x10000)) {
      if (code == 0x7f)
        piece += '\x7f';
      else
        piece += "\\u" + hex(code, 4);
    } else if (ensure_ascii && code >= 0x10000) {
      const uint32_t rest = code - 0x10000;
      piece += "\\u" + hex(0xd800 | rest >> 10, 4) + "\\u" + hex(0xdc00 | (rest & 0x3ff), 4);
    } else {
      append_utf8(piece, code);
    }
  }));
  return out.add("\"", source);
}

Status no_text(const Value& value) {
  return fail(format("a {} has no text that could be printed", type_name(value)));
}

// `source`: of the brackets.
Status add_repr(Budget& budget, TextBuilder& out, const Value& value, Source source) {
  TSR_RETURN_IF_ERROR(budget.spend());
  if (const auto* text = std::get_if<Text>(&value)) return add_quoted_text(out, *text, source);
  if (is<Undefined>(value)) return out.add("Undefined", source);
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    if ((*list)->form > ListForm::kTuple) return no_text(value);
    const bool tuple = (*list)->form == ListForm::kTuple;
    TSR_RETURN_IF_ERROR(out.add(tuple ? "(" : "[", source));
    for (const Value& item : (*list)->items) {
      if (&item != &(*list)->items.front()) TSR_RETURN_IF_ERROR(out.add(", ", source));
      TSR_RETURN_IF_ERROR(add_repr(budget, out, item, source));
    }
    if (tuple && (*list)->items.size() == 1) TSR_RETURN_IF_ERROR(out.add(",", source));
    return out.add(tuple ? ")" : "]", source);
  }
  if (const auto* dict = std::get_if<DictPtr>(&value)) {
    TSR_RETURN_IF_ERROR(out.add("{", source));
    for (const auto& item : (*dict)->items) {
      if (&item != &(*dict)->items.front()) TSR_RETURN_IF_ERROR(out.add(", ", source));
      TSR_RETURN_IF_ERROR(add_repr(budget, out, item.first, source));
      TSR_RETURN_IF_ERROR(out.add(": ", source));
      TSR_RETURN_IF_ERROR(add_repr(budget, out, item.second, source));
    }
    return out.add("}", source);
  }
  TSR_ASSIGN_OR_RETURN(const Text printed, print(budget, value));
  return out.add(printed);
}

struct JsonPrinter {
  Budget& budget;
  TextBuilder& out;
  const JsonStyle& style;
  Source source;

  Status newline(int depth) {
    if (!style.indent) return {};
    std::string line = "\n";
    for (int i = 0; i < depth; ++i) line += *style.indent;
    return out.add(line, source);
  }
  Status item_separator() {
    return out.add(style.item_separator ? *style.item_separator : style.indent ? "," : ", ", source);
  }
  Result<Text> key_text(const Value& key) const {
    if (const auto* text = std::get_if<Text>(&key)) return *text;
    if (is<None>(key)) return Text::of("null");
    if (const auto* flag = std::get_if<bool>(&key)) return Text::of(*flag ? "true" : "false");
    if (is_number(key)) return print(budget, key);
    return fail(format("tojson: keys are str, int, float, bool or None, found a {}", type_name(key)));
  }

  Status add(const Value& value, int depth) {
    TSR_RETURN_IF_ERROR(budget.spend());
    if (is<None>(value)) return out.add("null", source);
    if (const auto* flag = std::get_if<bool>(&value)) return out.add(*flag ? "true" : "false", source);
    if (const auto* integer = std::get_if<int64_t>(&value)) return out.add(to_text(*integer), source);
    if (const auto* real = std::get_if<double>(&value))
      return out.add(std::isnan(*real)   ? "NaN"
                     : std::isinf(*real) ? (*real < 0 ? "-Infinity" : "Infinity")
                                         : print_real(*real),
                     source);
    if (const auto* text = std::get_if<Text>(&value))
      return add_json_text(out, *text, style.ensure_ascii, source);
    if (const auto* list = std::get_if<ListPtr>(&value); list != nullptr && (*list)->form <= ListForm::kTuple)
      return add_list(**list, depth);
    if (const auto* dict = std::get_if<DictPtr>(&value)) return add_dict(**dict, depth);
    return fail(format("tojson: a {} cannot be written as JSON", type_name(value)));
  }

  Status add_list(const List& list, int depth) {
    if (list.items.empty()) return out.add("[]", source);
    TSR_RETURN_IF_ERROR(out.add("[", source));
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) TSR_RETURN_IF_ERROR(item_separator());
      TSR_RETURN_IF_ERROR(newline(depth + 1));
      TSR_RETURN_IF_ERROR(add(list.items[i], depth + 1));
    }
    TSR_RETURN_IF_ERROR(newline(depth));
    return out.add("]", source);
  }

  Status add_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) return out.add("{}", source);
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style.sort_keys) {
      for (const auto* item : items)
        if (!is<Text>(item->first)) return fail("tojson: sort_keys wants keys of type str");
      std::ranges::stable_sort(items, {},
                               [](const auto* item) { return std::get<Text>(item->first).bytes(); });
    }
    TSR_RETURN_IF_ERROR(out.add("{", source));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) TSR_RETURN_IF_ERROR(item_separator());
      TSR_RETURN_IF_ERROR(newline(depth + 1));
      TSR_ASSIGN_OR_RETURN(const Text key, key_text(items[i]->first));
      TSR_RETURN_IF_ERROR(add_json_text(out, key, style.ensure_ascii, source));
      TSR_RETURN_IF_ERROR(out.add(style.key_separator.value_or(": "), source));
      TSR_RETURN_IF_ERROR(add(items[i]->second, depth + 1));
    }
    TSR_RETURN_IF_ERROR(newline(depth));
    return out.add("}", source);
  }
};

}  // namespace

std::string print_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, std::end(buffer), value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const size_t mark = text.find('e');
  const int exponent = std::atoi(text.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

Result<Text> print(Budget& budget, const Value& value) {
  if (const auto* text = std::get_if<Text>(&value)) return text->with_markup(false);
  if (is<Undefined>(value)) return Text();
  if (is<None>(value)) return Text::of("None");
  if (const auto* flag = std::get_if<bool>(&value)) return Text::of(*flag ? "True" : "False");
  if (is_number(value)) TSR_RETURN_IF_ERROR(budget.spend_allocations(is<double>(value) ? 3 : 1));
  if (const auto* integer = std::get_if<int64_t>(&value)) return Text::of(to_text(*integer));
  if (const auto* real = std::get_if<double>(&value)) return Text::of(print_real(*real));
  if (is<ListPtr>(value) || is<DictPtr>(value)) return print_quoted(budget, value);
  return no_text(value);
}

Result<Text> print_quoted(Budget& budget, const Value& value) {
  TextBuilder out(budget);
  TSR_RETURN_IF_ERROR(add_repr(budget, out, value, source_of(value)));
  return out.finish();
}

Result<Text> print_json(Budget& budget, const Value& value, const JsonStyle& style) {
  TextBuilder out(budget);
  TSR_RETURN_IF_ERROR((JsonPrinter{budget, out, style, source_of(value)}.add(value, 0)));
  return out.finish();
}

Result<Value> from_json(Budget& budget, const Json& json, Source source) {
  if (json.is_null()) return Value(None{});
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return fail(format("the integer {} is beyond 64 bits", json.get<uint64_t>()));
  if (json.is_number_integer()) return Value(json.get<int64_t>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) return Value(Text::of(json.get_ref<const std::string&>(), source));
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) {
      TSR_ASSIGN_OR_RETURN(Value value, from_json(budget, item, source));
      items.push_back(std::move(value));
    }
    return make_list(budget, std::move(items));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, item] : json.items()) {
    TSR_ASSIGN_OR_RETURN(Value value, from_json(budget, item, source));
    items.emplace_back(Text::of(key, source), std::move(value));
  }
  return make_dict(budget, std::move(items));
}

}  // namespace tessera::jinja
