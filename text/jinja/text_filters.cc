// Filters of texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_parts.h"
#include "text/jinja/unicode.h"
#include "text/repeated_keys.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

Result<Value> value_of(Result<Text> text) {
  if (!text.ok()) return text.status();
  return Value(std::move(text).value());
}

// The filter's text operand: texts keep their `safe` mark, other values are printed.
Result<Text> soft_text(Evaluator& evaluator, const Value& value) {
  if (const auto* text = std::get_if<Text>(&value)) return *text;
  return print(evaluator.budget(), value);
}

Result<Value> restyle(Evaluator& evaluator, const Value& value, CaseStyle style) {
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_ASSIGN_OR_RETURN(const Text changed, change_case(evaluator.budget(), text, style));
  return Value(changed.with_markup(text.is_markup()));
}

Result<Value> filter_trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("trim", {"chars"}));
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  std::optional<Text> chars;
  if (!bound.is_none(0)) {
    TSR_ASSIGN_OR_RETURN(chars, bound.text(0));
  }
  TSR_ASSIGN_OR_RETURN(const Text stripped, strip(evaluator.budget(), text, true, true, chars));
  return Value(stripped.with_markup(text.is_markup()));
}

// Words begin after white space, '-', '(', '{', '[' and '<'.
Result<Value> filter_title(Evaluator& evaluator, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(text.size()));
  TextBuilder out(evaluator.budget());
  const std::string_view bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const auto is_border = [&](size_t i, size_t& size) {
      const uint32_t code = code_point_at(bytes, i, size);
      return is_space(code) || (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                                   std::string_view::npos);
    };
    size_t end = at, size = 0;
    const bool border = is_border(at, size);
    while (end < bytes.size() && is_border(end, size) == border) end += size;
    TSR_ASSIGN_OR_RETURN(Text word, slice(evaluator.budget(), text, at, end));
    if (!border) {
      (void)is_border(at, size);
      TSR_ASSIGN_OR_RETURN(Text first, slice(evaluator.budget(), text, at, at + size));
      TSR_ASSIGN_OR_RETURN(first, change_case(evaluator.budget(), first, CaseStyle::kUpper));
      TSR_RETURN_IF_ERROR(out.add(first));
      TSR_ASSIGN_OR_RETURN(word, slice(evaluator.budget(), text, at + size, end));
      TSR_ASSIGN_OR_RETURN(word, change_case(evaluator.budget(), word, CaseStyle::kLower));
    }
    TSR_RETURN_IF_ERROR(out.add(word));
    at = end;
  }
  return value_of(out.finish());
}

Result<Value> filter_string(Evaluator& evaluator, const Value& value, const Arguments&) {
  return value_of(soft_text(evaluator, value));
}

Result<Value> filter_safe(Evaluator& evaluator, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  return Value(text.with_markup(true));
}

Result<Value> filter_escape(Evaluator& evaluator, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  if (text.is_markup()) return Value(text);
  TSR_ASSIGN_OR_RETURN(const Text escaped, escape_html(evaluator.budget(), text));
  return Value(escaped.with_markup(true));
}

Result<Value> filter_replace(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("replace", {"old", "new", "count"}));
  TSR_ASSIGN_OR_RETURN(const Text text, print(evaluator.budget(), value));
  TSR_ASSIGN_OR_RETURN(const Value* old_value, bound.required(0));
  TSR_ASSIGN_OR_RETURN(const Value* new_value, bound.required(1));
  TSR_ASSIGN_OR_RETURN(const Text old, print(evaluator.budget(), *old_value));
  TSR_ASSIGN_OR_RETURN(const Text fresh, print(evaluator.budget(), *new_value));
  int64_t count = -1;
  if (!bound.is_none(2)) {
    TSR_ASSIGN_OR_RETURN(count, bound.integer(2));
  }
  return value_of(replace(evaluator.budget(), text, old, fresh, count));
}

Result<Value> filter_indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("indent", {"width", "first", "blank"}));
  if (is<Undefined>(value)) return fail_undefined(value);
  const auto* given = std::get_if<Text>(&value);
  if (given == nullptr) return fail(format("indent wants a str, found a {}", type_name(value)));
  Budget& budget = evaluator.budget();
  TextBuilder margin_builder(budget);
  if (bound.has(0) && is<Text>(bound.value(0))) {
    TSR_RETURN_IF_ERROR(margin_builder.add(std::get<Text>(bound.value(0))));
  } else {
    TSR_ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 4));
    for (int64_t i = 0; i < width; ++i) TSR_RETURN_IF_ERROR(margin_builder.add(" "));
  }
  TSR_ASSIGN_OR_RETURN(const Text margin, margin_builder.finish());
  // The added newline makes even an empty last line count.
  TSR_ASSIGN_OR_RETURN(const Value longer,
                       apply_binary(budget, Operation::kAdd, given->with_markup(false), Text::of("\n")));
  TSR_ASSIGN_OR_RETURN(const std::vector<Text> lines, split_lines(budget, std::get<Text>(longer), false));
  TextBuilder out(budget);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) TSR_RETURN_IF_ERROR(out.add("\n"));
    if (i == 0 ? bound.flag(1) : bound.flag(2) || !lines[i].empty()) TSR_RETURN_IF_ERROR(out.add(margin));
    TSR_RETURN_IF_ERROR(out.add(lines[i]));
  }
  return value_of(out.finish());
}

Result<Value> filter_format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    return fail("format takes positional or named arguments, not both");
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  return format_percent(evaluator.budget(), text, None{}, &arguments);
}

Result<Value> filter_wordcount(Evaluator& evaluator, const Value& value, const Arguments&) {
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(2 * text.size()));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    const bool word = is_word(code_point_at(text.bytes(), at, size));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(words);
}

Result<Value> filter_truncate(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind("truncate", {"length", "killwords", "end", "leeway"}));
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_ASSIGN_OR_RETURN(const int64_t length, bound.integer(0, 255));
  TSR_ASSIGN_OR_RETURN(const Text end, bound.text(2, Text::of("...")));
  TSR_ASSIGN_OR_RETURN(const int64_t leeway, bound.integer(3, 5));
  if (length < end.length() || leeway < 0)
    return fail(format("truncate: length is {}, wanted at least {}", length, end.length()));
  if (text.length() <= length + leeway) return Value(text);
  size_t stop = text.byte_of(length - end.length());
  if (!bound.flag(1))
    if (const size_t space = text.bytes().substr(0, stop).rfind(' '); space != std::string_view::npos)
      stop = space;
  TextBuilder out(evaluator.budget());
  TSR_RETURN_IF_ERROR(out.add(text, 0, stop));
  TSR_RETURN_IF_ERROR(out.add(end));
  return value_of(out.finish());
}

Result<Value> filter_center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("center", {"width"}));
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 80));
  return value_of(pad(evaluator.budget(), text, width, Text::of(" "), Padding::kBoth));
}

Result<Value> filter_tojson(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (!bound.is_none(1)) {
    if (const auto* text = std::get_if<Text>(&bound.value(1))) {
      style.indent = std::string(text->bytes());
    } else {
      TSR_ASSIGN_OR_RETURN(const int64_t width, bound.integer(1));
      if (width > 1000) return fail(format("tojson: indent is {}, wanted at most 1000", width));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (!bound.is_none(2)) {
    TSR_ASSIGN_OR_RETURN(const ListPtr pair, iterate(evaluator.budget(), bound.value(2)));
    if (pair->items.size() != 2 || !is<Text>(pair->items[0]) || !is<Text>(pair->items[1]))
      return fail("tojson: separators are two texts");
    style.item_separator = std::string(std::get<Text>(pair->items[0]).bytes());
    style.key_separator = std::string(std::get<Text>(pair->items[1]).bytes());
  }
  return value_of(print_json(evaluator.budget(), value, style));
}

// Not in Jinja2, but in templates written for llama.cpp.
Result<Value> filter_from_json(Evaluator& evaluator, const Value& value, const Arguments&) {
  const auto* text = std::get_if<Text>(&value);
  if (text == nullptr) return fail(format("from_json wants a str, found a {}", type_name(value)));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend(2 * static_cast<int64_t>(text->size())));
  TSR_ASSIGN_OR_RETURN(const Lease room, evaluator.budget().lease(16 * text->size()));
  TSR_ASSIGN_OR_RETURN(const Json json, parse_json_with_last_keys(text->bytes(), "from_json"));
  return from_json(evaluator.budget(), json, text->source());
}

// Parses an integer, as Python's int(text, base).
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  text = trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::string digits;
  if ((base == 16 || base == 8 || base == 2) && text.size() > 2 && text[0] == '0' &&
      (text[1] | 32) == (base == 16  ? 'x'
                         : base == 8 ? 'o'
                                     : 'b'))
    text.remove_prefix(2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    digits += text[i];
  }
  if (negative) digits.insert(0, "-");
  int64_t number = 0;
  const auto outcome =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (outcome.ec != std::errc() || outcome.ptr != digits.data() + digits.size()) return {};
  return number;
}

std::optional<double> parse_real(std::string_view text) {
  text = trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || i + 1 == text.size()) digits += text[i];
  return parse_f64(digits);
}

Result<Value> filter_int(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("int", {"default", "base"}));
  TSR_ASSIGN_OR_RETURN(const int64_t base, bound.integer(1, 10));
  const Value initial = bound.has(0) ? bound.value(0) : Value(int64_t{0});
  if (const auto integer = as_integer(value)) return Value(*integer);
  if (base < 2 || base > 36) return initial;
  std::optional<double> real;
  if (const auto* held = std::get_if<double>(&value)) real = *held;
  if (const auto* text = std::get_if<Text>(&value)) {
    TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(2 * text->size()));  // parsed as both kinds of number
    if (const auto integer = parse_integer(text->bytes(), base)) return Value(*integer);
    real = parse_real(text->bytes());
  }
  if (is<Undefined>(value)) return fail_undefined(value);
  if (!real || !std::isfinite(*real)) return initial;
  if (!(std::abs(*real) < 9.2e18)) return fail("int: the number is beyond 64 bits");
  return Value(static_cast<int64_t>(*real));
}

Result<Value> filter_float(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("float", {"default"}));
  if (is<Undefined>(value)) return fail_undefined(value);
  if (const auto real = as_real(value)) return Value(*real);
  if (const auto* text = std::get_if<Text>(&value)) {
    TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(text->size()));
    if (const auto real = parse_real(text->bytes())) return Value(*real);
  }
  return bound.has(0) ? bound.value(0) : Value(0.0);
}

Result<Value> filter_abs(Evaluator&, const Value& value, const Arguments&) {
  if (is<Undefined>(value)) return fail_undefined(value);
  if (!is_number(value)) return fail(format("abs wants a number, found a {}", type_name(value)));
  if (const auto integer = as_integer(value))
    return *integer < 0 ? negate(value) : Result<Value>(Value(*integer));
  return Value(std::abs(*as_real(value)));
}

// Python's rounding: half to even, on the exact decimal value.
double round_to_even(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision <= 0) {
    const double unit = std::pow(10.0, -static_cast<double>(precision));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  const auto outcome =
      std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed, static_cast<int>(precision));
  double rounded = value;
  std::from_chars(buffer, outcome.ptr, rounded);
  return rounded;
}

Result<Value> filter_round(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("round", {"precision", "method"}));
  TSR_ASSIGN_OR_RETURN(const int64_t precision, bound.integer(0, 0));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend(4 + std::clamp<int64_t>(precision, 0, 300) / 8));  // digits
  TSR_ASSIGN_OR_RETURN(const Text method, bound.text(1, Text::of("common")));
  if (is<Undefined>(value)) return fail_undefined(value);
  if (!is_number(value)) return fail(format("round wants a number, found a {}", type_name(value)));
  if (method.bytes() == "common") {
    if (as_integer(value) && precision >= 0) return Value(*as_integer(value));
    if (as_integer(value)) {
      const double rounded = round_to_even(*as_real(value), precision);
      if (!(std::abs(rounded) < 9.2e18)) return fail("round: the number is beyond 64 bits");
      return Value(static_cast<int64_t>(rounded));
    }
    return Value(round_to_even(*as_real(value), precision));
  }
  if (method.bytes() != "ceil" && method.bytes() != "floor")
    return fail(format("round: method is '{}', wanted common, ceil or floor", method.bytes()));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *as_real(value) * scale;
  return Value((method.bytes() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> filter_urlencode(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (is<ListPtr>(value) || is<DictPtr>(value))
    return Status(StatusCode::kUnsupported, "urlencode of lists and dicts is not supported");
  TSR_ASSIGN_OR_RETURN(const Text text, soft_text(evaluator, value));
  TSR_RETURN_IF_ERROR(evaluator.budget().spend_characters(text.size()));
  std::string encoded;
  for (const char c : text.bytes()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    constexpr char kHex[] = "0123456789ABCDEF";
    if (plain)
      encoded += c;
    else
      ((encoded += '%') += kHex[static_cast<unsigned char>(c) >> 4]) +=
          kHex[static_cast<unsigned char>(c) & 15];
  }
  TextBuilder out(evaluator.budget());
  TSR_RETURN_IF_ERROR(out.add(encoded, text.source()));
  return value_of(out.finish());
}

template <CaseStyle style>
Result<Value> filter_case(Evaluator& evaluator, const Value& value, const Arguments&) {
  return restyle(evaluator, value, style);
}

constexpr FilterEntry kFilters[] = {
    {"upper", filter_case<CaseStyle::kUpper>},
    {"lower", filter_case<CaseStyle::kLower>},
    {"capitalize", filter_case<CaseStyle::kCapitalize>},
    {"title", filter_title},
    {"trim", filter_trim},
    {"string", filter_string},
    {"safe", filter_safe},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"format", filter_format},
    {"wordcount", filter_wordcount},
    {"truncate", filter_truncate},
    {"center", filter_center},
    {"tojson", filter_tojson},
    {"from_json", filter_from_json},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"urlencode", filter_urlencode},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace tessera::jinja
