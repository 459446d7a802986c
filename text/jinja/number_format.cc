#include <algorithm>
#include <charconv>
#include <cmath>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/printing.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }
constexpr int64_t kMostWidth = 10'000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Specification {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false;
  int64_t width = 0, precision = -1;
};

Result<Specification> parse_specification(std::string_view text) {
  const std::string_view whole = text;
  Specification parsed;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t first = 0;
  if (!text.empty()) (void)code_point_at(text, 0, first);
  if (text.size() > first && is_align(text[first])) {
    parsed.fill = text.substr(0, first);
    parsed.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    parsed.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&text](std::string_view any) {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) parsed.sign = sign;
  parsed.alternate = take("#") != 0;
  if (take("0") && parsed.align == 0) {
    parsed.fill = "0";
    parsed.align = '=';
  }
  const auto take_number = [&text](int64_t& number) {
    const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<size_t>(outcome.ptr - text.data()));
    return outcome.ec == std::errc() && number <= kMostWidth && number >= 0;
  };
  bool good = true;
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') good = take_number(parsed.width);
  parsed.grouping = take(",_");
  if (take(".")) good = good && take_number(parsed.precision);
  parsed.type = take("bcdeEfFgGnosxX%");
  if (!good || !text.empty()) return fail(format("the format '{}' is not understood", whole.substr(0, 64)));
  return parsed;
}

std::string grouped(std::string digits, char separator, size_t every) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (size_t at = end; at > every; at -= every) digits.insert(at - every, 1, separator);
  return digits;
}

std::string digits_of(uint64_t value, int base, bool upper) {
  char buffer[65];
  const auto outcome = std::to_chars(buffer, std::end(buffer), value, base);
  std::string digits(buffer, outcome.ptr);
  if (upper)
    std::ranges::transform(digits, digits.begin(), [](char c) { return c >= 'a' ? char(c - 32) : c; });
  return digits;
}

// Without a sign.
std::string real_digits(double value, const Specification& parsed) {
  const char type = parsed.type;
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  if (type == 0 && parsed.precision < 0) return print_real(value);
  const double scaled = type == '%' ? value * 100 : value;
  const int precision = static_cast<int>(parsed.precision < 0 ? 6 : parsed.precision);
  const auto style = type == 'e' || type == 'E'                  ? std::chars_format::scientific
                     : type == 'f' || type == 'F' || type == '%' ? std::chars_format::fixed
                                                                 : std::chars_format::general;
  std::string buffer(static_cast<size_t>(precision) + 400, '\0');
  const auto outcome =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), scaled, style,
                    style == std::chars_format::general ? std::max(precision, 1) : precision);
  buffer.resize(static_cast<size_t>(outcome.ptr - buffer.data()));
  if (type == 'E' || type == 'G') std::ranges::replace(buffer, 'e', 'E');
  if (type == 0 && buffer.find_first_of(".e") == std::string::npos) buffer += ".0";
  return type == '%' ? buffer + "%" : buffer;
}

Result<std::string> number_digits(const Value& value, const Specification& parsed, bool& negative) {
  const char type = parsed.type;
  const auto integer = as_integer(value);
  const bool is_real_type = type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  if (!integer || is_real_type) {
    const double real = *as_real(value);
    if (!integer && type != 0 && !is_real_type && type != 'n')
      return fail(format("the format '{}' does not fit a float", type));
    negative = std::signbit(real);
    std::string digits = real_digits(std::abs(real), parsed);
    return parsed.grouping != 0 ? grouped(std::move(digits), parsed.grouping, 3) : digits;
  }
  if (parsed.precision >= 0) return fail("a precision does not fit an integer");
  negative = *integer < 0;
  const uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(*integer) : static_cast<uint64_t>(*integer);
  if (type == 'c') {
    if (negative || magnitude > 0x10ffff || (magnitude >= 0xd800 && magnitude < 0xe000))
      return fail("the format 'c' wants the number of a character");
    std::string character;
    append_utf8(character, static_cast<uint32_t>(magnitude));
    return character;
  }
  if (type == 's') return fail("the format 's' does not fit an integer");
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  std::string digits = digits_of(magnitude, base, type == 'X');
  if (parsed.grouping != 0) digits = grouped(std::move(digits), parsed.grouping, base == 10 ? 3 : 4);
  return parsed.alternate && base != 10 ? std::string("0") + type + digits : digits;
}

std::string repeated(std::string_view text, int64_t times) {
  std::string all;
  for (int64_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

Result<Text> format_value(Budget& budget, const Value& value, std::string_view specification) {
  if (specification.empty()) return print(budget, value);
  TSR_ASSIGN_OR_RETURN(const Specification parsed, parse_specification(specification));
  TSR_RETURN_IF_ERROR(budget.spend((parsed.width + std::max<int64_t>(parsed.precision, 0)) / 4));
  TextBuilder builder(budget);
  if (const auto* text = std::get_if<Text>(&value)) {
    if ((parsed.type != 0 && parsed.type != 's') || parsed.align == '=' || parsed.sign != '-' ||
        parsed.grouping != 0)
      return fail(format("the format '{}' does not fit a str", specification.substr(0, 64)));
    const int64_t length = parsed.precision < 0 ? text->length() : std::min(text->length(), parsed.precision);
    const int64_t room = std::max<int64_t>(0, parsed.width - length);
    const int64_t before = parsed.align == '>' ? room : parsed.align == '^' ? room / 2 : 0;
    TSR_RETURN_IF_ERROR(builder.add(repeated(parsed.fill, before)));
    TSR_RETURN_IF_ERROR(builder.add(*text, 0, text->byte_of(length)));
    TSR_RETURN_IF_ERROR(builder.add(repeated(parsed.fill, room - before)));
    return builder.finish();
  }
  if (!is_number(value)) return fail(format("a {} takes no format", type_name(value)));
  bool negative = false;
  TSR_ASSIGN_OR_RETURN(const std::string digits, number_digits(value, parsed, negative));
  const std::string sign = negative ? "-" : parsed.sign == '-' ? "" : std::string(1, parsed.sign);
  const int64_t room =
      std::max<int64_t>(0, parsed.width - static_cast<int64_t>(sign.size()) - count_code_points(digits));
  const std::string fill = repeated(parsed.fill, room);
  const int64_t half = parsed.align == '^' ? room / 2 : 0;
  std::string all;
  if (parsed.align == '=')
    all = sign + fill + digits;
  else if (parsed.align == '<')
    all = sign + digits + fill;
  else if (parsed.align == '^')
    all = repeated(parsed.fill, half) + sign + digits + repeated(parsed.fill, room - half);
  else
    all = fill + sign + digits;
  TSR_RETURN_IF_ERROR(builder.add(all));
  return builder.finish();
}

}  // namespace tessera::jinja
