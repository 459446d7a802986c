#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/text_parts.h"
#include "text/jinja/unicode.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

struct Call {
  Evaluator& evaluator;
  const Text& self;
  std::string_view name;
  const Arguments& arguments;
  Budget& budget() const { return evaluator.budget(); }
};

Result<Value> value_of(Result<Text> text) {
  if (!text.ok()) return text.status();
  return Value(std::move(text).value());
}

Result<Value> list_of(Budget& budget, std::vector<Text> parts, ListForm form = ListForm::kList) {
  return make_list(budget, std::vector<Value>(parts.begin(), parts.end()), form);
}

Result<Value> call_strip(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"chars"}));
  std::optional<Text> chars;
  if (!bound.is_none(0)) {
    TSR_ASSIGN_OR_RETURN(chars, bound.text(0));
  }
  return value_of(strip(call.budget(), call.self, call.name != "rstrip", call.name != "lstrip", chars));
}

Result<Value> call_split(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"sep", "maxsplit"}));
  TSR_ASSIGN_OR_RETURN(const int64_t most, bound.integer(1, -1));
  std::optional<Text> separator;
  if (!bound.is_none(0)) {
    TSR_ASSIGN_OR_RETURN(separator, bound.text(0));
    if (separator->empty()) return fail(format("{}: the separator is empty", call.name));
  }
  TSR_ASSIGN_OR_RETURN(std::vector<Text> parts,
                       split(call.budget(), call.self, separator, most, call.name == "rsplit"));
  return list_of(call.budget(), std::move(parts));
}

Result<Value> call_splitlines(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"keepends"}));
  TSR_ASSIGN_OR_RETURN(std::vector<Text> lines, split_lines(call.budget(), call.self, bound.flag(0)));
  return list_of(call.budget(), std::move(lines));
}

struct Window {
  size_t begin = 0, end = 0;  // bytes
  bool is_valid = true;
};

// The part of a text between two optional indices.
Result<Window> window_of(const Text& text, const BoundArguments& bound, size_t first) {
  const int64_t length = text.length();
  int64_t limits[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    if (bound.is_none(first + i)) continue;
    TSR_ASSIGN_OR_RETURN(const int64_t index, bound.integer(first + i));
    limits[i] = index < 0 ? std::max<int64_t>(index + length, 0) : index;
  }
  limits[1] = std::min(limits[1], length);
  if (limits[0] > limits[1]) return Window{0, 0, false};
  return Window{text.byte_of(limits[0]), text.byte_of(limits[1]), true};
}

Result<Value> call_starts_ends(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound,
                       call.arguments.bind(call.name, {"prefix", "start", "end"}));
  TSR_ASSIGN_OR_RETURN(const Value* wanted, bound.required(0));
  TSR_ASSIGN_OR_RETURN(const Window window, window_of(call.self, bound, 1));
  std::vector<Value> candidates = {*wanted};
  if (const auto* tuple = std::get_if<ListPtr>(wanted);
      tuple != nullptr && (*tuple)->form == ListForm::kTuple)
    candidates = (*tuple)->items;
  const std::string_view bytes = call.self.bytes().substr(window.begin, window.end - window.begin);
  bool found = false;
  for (const Value& candidate : candidates) {
    const auto* text = std::get_if<Text>(&candidate);
    if (text == nullptr)
      return fail(format("{} wants a str or a tuple of them, found a {}", call.name, type_name(candidate)));
    TSR_RETURN_IF_ERROR(call.budget().spend_bytes(text->size()));
    found |= window.is_valid &&
             (call.name == "startswith" ? bytes.starts_with(text->bytes()) : bytes.ends_with(text->bytes()));
  }
  return Value(found);
}

Result<Value> call_find(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"sub", "start", "end"}));
  TSR_ASSIGN_OR_RETURN(const Text part, bound.text(0));
  TSR_ASSIGN_OR_RETURN(const Window window, window_of(call.self, bound, 1));
  TSR_RETURN_IF_ERROR(call.budget().spend_characters(call.self.size() + part.size()));
  const std::string_view bytes = call.self.bytes().substr(window.begin, window.end - window.begin);
  if (call.name == "count") {
    if (!window.is_valid) return Value(int64_t{0});
    if (part.empty()) return Value(count_code_points(bytes) + 1);
    int64_t count = 0;
    for (size_t at = find_first(bytes, part.bytes()); at != std::string_view::npos;
         at = find_first(bytes, part.bytes(), at + part.size()))
      ++count;
    return Value(count);
  }
  const bool from_right = call.name == "rfind" || call.name == "rindex";
  const size_t at = from_right ? find_last(bytes, part.bytes()) : find_first(bytes, part.bytes());
  if (window.is_valid && at != std::string_view::npos)
    return Value(call.self.index_of_byte(window.begin + at));
  if (call.name == "find" || call.name == "rfind") return Value(int64_t{-1});
  return fail(format("{}: the part was not found", call.name));
}

Result<Value> call_replace(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"old", "new", "count"}));
  TSR_ASSIGN_OR_RETURN(const Text old, bound.text(0));
  TSR_ASSIGN_OR_RETURN(const Text fresh, bound.text(1));
  TSR_ASSIGN_OR_RETURN(const int64_t most, bound.integer(2, -1));
  return value_of(replace(call.budget(), call.self, old, fresh, most));
}

Result<Value> call_case(const Call& call) {
  struct Style {
    std::string_view name;
    CaseStyle style;
  };
  constexpr Style kStyles[] = {{"upper", CaseStyle::kUpper},           {"lower", CaseStyle::kLower},
                               {"capitalize", CaseStyle::kCapitalize}, {"title", CaseStyle::kTitle},
                               {"swapcase", CaseStyle::kSwap},         {"casefold", CaseStyle::kFold}};
  TSR_ASSIGN_OR_RETURN(const BoundArguments none, call.arguments.bind(call.name, {}));
  return value_of(
      change_case(call.budget(), call.self, std::ranges::find(kStyles, call.name, &Style::name)->style));
}

Result<Value> call_join(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"iterable"}));
  TSR_ASSIGN_OR_RETURN(const Value* parts, bound.required(0));
  TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(call.budget(), *parts));
  TextBuilder builder(call.budget());
  for (size_t i = 0; i < list->items.size(); ++i) {
    const auto* text = std::get_if<Text>(&list->items[i]);
    if (text == nullptr) return fail(format("join wants texts, found a {}", type_name(list->items[i])));
    if (i > 0) TSR_RETURN_IF_ERROR(builder.add(call.self));
    TSR_RETURN_IF_ERROR(builder.add(*text));
  }
  return value_of(builder.finish());
}

Result<Value> call_pad(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"width", "fillchar"}));
  TSR_ASSIGN_OR_RETURN(const int64_t width, bound.integer(0));
  TSR_ASSIGN_OR_RETURN(const Text fill, bound.text(1, Text::of(" ")));
  if (fill.length() != 1) return fail(format("{}: the fill is one character", call.name));
  const Padding side = call.name == "ljust"   ? Padding::kRight
                       : call.name == "rjust" ? Padding::kLeft
                                              : Padding::kBoth;
  return value_of(pad(call.budget(), call.self, width, fill, side));
}

Result<Value> call_zfill(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"width"}));
  TSR_ASSIGN_OR_RETURN(const int64_t width, bound.integer(0));
  const size_t sign = call.self.bytes().starts_with('-') || call.self.bytes().starts_with('+') ? 1 : 0;
  TextBuilder builder(call.budget());
  TSR_RETURN_IF_ERROR(builder.add(call.self, 0, sign));
  for (int64_t i = call.self.length(); i < width; ++i) TSR_RETURN_IF_ERROR(builder.add("0"));
  TSR_RETURN_IF_ERROR(builder.add(call.self, sign, call.self.size()));
  return value_of(builder.finish());
}

Result<Value> call_remove(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"part"}));
  TSR_ASSIGN_OR_RETURN(const Text part, bound.text(0));
  const std::string_view bytes = call.self.bytes();
  if (call.name == "removeprefix" && bytes.starts_with(part.bytes()))
    return value_of(slice(call.budget(), call.self, part.size(), bytes.size()));
  if (call.name == "removesuffix" && bytes.ends_with(part.bytes()))
    return value_of(slice(call.budget(), call.self, 0, bytes.size() - part.size()));
  return Value(call.self);
}

Result<Value> call_partition(const Call& call) {
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, call.arguments.bind(call.name, {"sep"}));
  TSR_ASSIGN_OR_RETURN(const Text separator, bound.text(0));
  if (separator.empty()) return fail(format("{}: the separator is empty", call.name));
  TSR_RETURN_IF_ERROR(call.budget().spend_characters(call.self.size() + separator.size()));
  const bool from_right = call.name == "rpartition";
  const std::string_view bytes = call.self.bytes();
  const size_t at = from_right ? find_last(bytes, separator.bytes()) : find_first(bytes, separator.bytes());
  std::vector<Text> parts = from_right ? std::vector<Text>{Text(), Text(), call.self}
                                       : std::vector<Text>{call.self, Text(), Text()};
  if (at != std::string_view::npos) {
    const size_t cuts[] = {0, at, at + separator.size(), bytes.size()};
    for (size_t i = 0; i < 3; ++i) {
      TSR_ASSIGN_OR_RETURN(parts[i], slice(call.budget(), call.self, cuts[i], cuts[i + 1]));
    }
  }
  return list_of(call.budget(), std::move(parts), ListForm::kTuple);
}

// isdigit and the like: every character, and at least one.
Result<Value> call_is(const Call& call) {
  struct Question {
    std::string_view name;
    bool (*holds)(uint32_t);
  };
  constexpr Question kQuestions[] = {
      {"isalpha", is_alphabetic},
      {"isdecimal", is_decimal},
      {"isdigit", is_digit},
      {"isnumeric", is_numeric},
      {"isspace", is_space},
      {"isprintable", is_printable},
      {"isalnum", [](uint32_t code) { return is_alphabetic(code) || is_numeric(code); }},
      {"isascii", [](uint32_t code) { return code < 0x80; }}};
  TSR_ASSIGN_OR_RETURN(const BoundArguments none, call.arguments.bind(call.name, {}));
  TSR_RETURN_IF_ERROR(call.budget().spend_characters(2 * call.self.size()));
  const std::string_view bytes = call.self.bytes();
  const auto* question = std::ranges::find(kQuestions, call.name, &Question::name);
  bool all = !call.self.empty() || call.name == "isascii" || call.name == "isprintable";
  bool cased = false;
  for (size_t at = 0, size = 0; at < bytes.size() && all; at += size) {
    const uint32_t code = code_point_at(bytes, at, size);
    if (question != std::end(kQuestions)) {
      all = question->holds(code);
    } else {  // isupper, islower: only cased characters count
      cased |= is_cased(code);
      all = !is_cased(code) || (call.name == "isupper" ? is_upper(code) : is_lower(code));
    }
  }
  return Value(all && (question != std::end(kQuestions) || cased));
}

Result<Value> call_format(const Call& call) { return call.evaluator.format_text(call.self, call.arguments); }

Result<Value> call_unsupported(const Call& call) {
  return Status(StatusCode::kUnsupported, format("the method '{}' of a str is not supported", call.name));
}

struct MethodEntry {
  std::string_view name;
  Result<Value> (*apply)(const Call& call);
};
constexpr MethodEntry kMethods[] = {
    {"strip", call_strip},
    {"lstrip", call_strip},
    {"rstrip", call_strip},
    {"split", call_split},
    {"rsplit", call_split},
    {"splitlines", call_splitlines},
    {"startswith", call_starts_ends},
    {"endswith", call_starts_ends},
    {"find", call_find},
    {"rfind", call_find},
    {"index", call_find},
    {"rindex", call_find},
    {"count", call_find},
    {"replace", call_replace},
    {"upper", call_case},
    {"lower", call_case},
    {"capitalize", call_case},
    {"title", call_case},
    {"swapcase", call_case},
    {"casefold", call_case},
    {"join", call_join},
    {"ljust", call_pad},
    {"rjust", call_pad},
    {"center", call_pad},
    {"zfill", call_zfill},
    {"removeprefix", call_remove},
    {"removesuffix", call_remove},
    {"partition", call_partition},
    {"rpartition", call_partition},
    {"isalpha", call_is},
    {"isdecimal", call_is},
    {"isdigit", call_is},
    {"isnumeric", call_is},
    {"isspace", call_is},
    {"isprintable", call_is},
    {"isalnum", call_is},
    {"isascii", call_is},
    {"isupper", call_is},
    {"islower", call_is},
    {"format", call_format},
    {"format_map", call_unsupported},
    {"encode", call_unsupported},
    {"expandtabs", call_unsupported},
    {"isidentifier", call_unsupported},
    {"istitle", call_unsupported},
    {"translate", call_unsupported},
    {"maketrans", call_unsupported},
};

}  // namespace

std::vector<std::string_view> text_method_names() {
  std::vector<std::string_view> names;
  for (const MethodEntry& entry : kMethods) names.push_back(entry.name);
  return names;
}

bool has_text_method(std::string_view name) {
  return std::ranges::find(kMethods, name, &MethodEntry::name) != std::end(kMethods);
}

Result<Value> call_text_method(Evaluator& evaluator, const Text& text, std::string_view name,
                               const Arguments& arguments) {
  return std::ranges::find(kMethods, name, &MethodEntry::name)->apply({evaluator, text, name, arguments});
}

}  // namespace tessera::jinja
