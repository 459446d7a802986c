// text % value, as Python's printf-like formatting: "%s has %d", "%(name)s".
#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/printing.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// Directive: the part after '%'.
struct Directive {
  std::optional<std::string> key;
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = -1, precision = -1;
  char type = 0;
};

Result<size_t> parse_directive(std::string_view pattern, size_t at, Directive& directive) {
  const auto more = [&] { return at < pattern.size(); };
  if (more() && pattern[at] == '(') {
    const size_t end = pattern.find(')', at);
    if (end == std::string_view::npos) return fail("'%(' in a format is not closed");
    directive.key = std::string(pattern.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  for (; more() && std::string_view("-+ 0#").find(pattern[at]) != std::string_view::npos; ++at) {
    const char c = pattern[at];
    directive.left |= c == '-';
    directive.plus |= c == '+';
    directive.space |= c == ' ';
    directive.zero |= c == '0';
    directive.alternate |= c == '#';
  }
  const auto read_number = [&](int64_t& number) {
    number = 0;
    for (; more() && pattern[at] >= '0' && pattern[at] <= '9' && number < 10'000; ++at)
      number = number * 10 + (pattern[at] - '0');
  };
  if (more() && pattern[at] >= '1' && pattern[at] <= '9') read_number(directive.width);
  if (more() && pattern[at] == '.') {
    ++at;
    read_number(directive.precision);
  }
  if (!more()) return fail("a format ends within a '%' directive");
  directive.type = pattern[at];
  return at + 1;
}

Result<Text> apply(Budget& budget, const Directive& directive, const Value& value) {
  const char type = directive.type == 'i' || directive.type == 'u' ? 'd' : directive.type;
  std::string specification;
  if (type == 's' || type == 'r' || type == 'a') {
    TSR_ASSIGN_OR_RETURN(const Text text, type == 's' ? print(budget, value) : print_quoted(budget, value));
    specification = directive.left ? "<" : ">";
    if (directive.width > 0) specification += to_text(directive.width);
    if (directive.precision >= 0) specification += "." + to_text(directive.precision);
    return format_value(budget, text, specification);
  }
  if (std::string_view("dxXofFeEgGc").find(type) == std::string_view::npos)
    return fail(format("'%{}' in a format is not supported", type));
  if (type == 'c' && is<Text>(value)) return print(budget, value);
  Value number = value;
  if (!is_number(value)) {
    if (is<Undefined>(value)) return fail_undefined(value);
    return fail(format("'%{}' in a format wants a number, found a {}", type, type_name(value)));
  }
  if (type == 'd' && is<double>(value)) {
    const double real = std::get<double>(value);
    if (!(real > -9.2e18 && real < 9.2e18)) return fail("'%d' in a format: the number is beyond 64 bits");
    number = static_cast<int64_t>(real);
  }
  if (directive.left) specification = "<";
  if (directive.plus || directive.space) specification += directive.plus ? '+' : ' ';
  if (directive.alternate) specification += '#';
  if (directive.zero && !directive.left) specification += '0';
  if (directive.width > 0) specification += to_text(directive.width);
  if (directive.precision >= 0 && !as_integer(number)) specification += "." + to_text(directive.precision);
  if (directive.precision >= 0 && as_integer(number) &&
      std::string_view("fFeEgG").find(type) != std::string_view::npos)
    specification += "." + to_text(directive.precision);
  return format_value(budget, number, specification + type);
}

}  // namespace

Result<Value> format_percent(Budget& budget, const Text& pattern, const Value& value,
                             const Arguments* arguments) {
  TSR_RETURN_IF_ERROR(budget.spend_characters(pattern.size()));
  std::vector<Value> given = {value};
  const auto* tuple = std::get_if<ListPtr>(&value);
  const size_t named_count = arguments != nullptr ? arguments->named.size() : 0;
  if (tuple != nullptr) TSR_RETURN_IF_ERROR(budget.spend_items((*tuple)->items.size()));
  if (arguments != nullptr)
    given = arguments->positional;
  else if (tuple != nullptr && (*tuple)->form == ListForm::kTuple)
    given = (*tuple)->items;
  const auto find_named = [&](const std::string& key) -> const Value* {
    if (arguments != nullptr) {
      for (const auto& [name, held] : arguments->named)
        if (name == key) return &held;
      return nullptr;
    }
    const auto* dict = std::get_if<DictPtr>(&value);
    return dict == nullptr ? nullptr : (*dict)->find(key);
  };
  TextBuilder out(budget);
  size_t used = 0, from = 0;
  const std::string_view bytes = pattern.bytes();
  bool named = false;
  for (size_t at = bytes.find('%'); at != std::string_view::npos; at = bytes.find('%', from)) {
    TSR_RETURN_IF_ERROR(budget.spend_allocations(1));
    TSR_RETURN_IF_ERROR(out.add(pattern, from, at));
    Directive directive;
    TSR_ASSIGN_OR_RETURN(from, parse_directive(bytes, at + 1, directive));
    if (directive.type == '%') {
      TSR_RETURN_IF_ERROR(out.add(pattern, at, at + 1));
      continue;
    }
    const Value* item = nullptr;
    if (directive.key) {
      named = true;
      TSR_RETURN_IF_ERROR(budget.spend_items(named_count));
      item = find_named(*directive.key);
      if (item == nullptr) return fail(format("a format names '{}', which is not there", *directive.key));
    } else {
      if (used == given.size()) return fail("a format has more directives than values");
      item = &given[used++];
    }
    TSR_ASSIGN_OR_RETURN(const Text text, apply(budget, directive, *item));
    TSR_RETURN_IF_ERROR(out.add(text));
  }
  TSR_RETURN_IF_ERROR(out.add(pattern, from, pattern.size()));
  const bool counts = arguments != nullptr || !is<DictPtr>(value);
  if (!named && counts && used < given.size()) return fail("a format has fewer directives than values");
  TSR_ASSIGN_OR_RETURN(Text text, out.finish());
  return Value(std::move(text));
}

}  // namespace tessera::jinja
