#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

Status not_defined(Operation operation, const Value& a, const Value& b) {
  if (is<Undefined>(a)) return fail_undefined(a);
  if (is<Undefined>(b)) return fail_undefined(b);
  return fail(format("'{}' is not defined for a {} and a {}", kSymbols[static_cast<size_t>(operation)],
                     type_name(a), type_name(b)));
}

Status overflow(Operation operation) {
  return fail(
      format("the result of '{}' is beyond integers of 64 bits", kSymbols[static_cast<size_t>(operation)]));
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail("0 to a negative power: division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result))
      return overflow(Operation::kPower);
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(Operation::kPower);
  }
  return Value(result);
}

Result<Value> apply_integers(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  switch (operation) {
    case Operation::kAdd: fits = !__builtin_add_overflow(a, b, &result); break;
    case Operation::kSubtract: fits = !__builtin_sub_overflow(a, b, &result); break;
    case Operation::kMultiply: fits = !__builtin_mul_overflow(a, b, &result); break;
    case Operation::kPower: return power(a, b);
    default:
      if (b == 0) return fail("division by zero");
      if (operation == Operation::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
      fits = a != INT64_MIN || b != -1;
      if (!fits) break;
      const bool rounds_down = a % b != 0 && (a < 0) != (b < 0);
      result = operation == Operation::kFloorDivide ? a / b - (rounds_down ? 1 : 0)
                                                    : a % b + (rounds_down ? b : 0);
  }
  if (!fits) return overflow(operation);
  return Value(result);
}

Result<Value> apply_reals(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd: return Value(a + b);
    case Operation::kSubtract: return Value(a - b);
    case Operation::kMultiply: return Value(a * b);
    case Operation::kPower: {
      if (a == 0 && b < 0) return fail("0 to a negative power: division by zero");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        return fail("a fractional power of a negative number is complex: not supported");
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) return fail("the power is beyond 64 bits");
      return Value(result);
    }
    default: break;
  }
  if (b == 0) return fail("division by zero");
  if (operation == Operation::kDivide) return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (operation == Operation::kModulo) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  const double floor = std::floor(quotient);
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : quotient - floor > 0.5 ? floor + 1 : floor);
}

const List* list_of(const Value& value) {
  const auto* list = std::get_if<ListPtr>(&value);
  return list != nullptr && (*list)->form <= ListForm::kTuple ? list->get() : nullptr;
}

Result<Value> repeat(Budget& budget, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (const auto* text = std::get_if<Text>(&value)) {
    TextBuilder builder(budget);
    for (int64_t i = 0; i < times && !text->empty(); ++i) TSR_RETURN_IF_ERROR(builder.add(*text));
    TSR_ASSIGN_OR_RETURN(const Text repeated, builder.finish());
    return Value(repeated.with_markup(text->is_markup()));
  }
  const List& list = *list_of(value);
  const auto size = static_cast<int64_t>(list.items.size());
  int64_t total = 0;
  if (__builtin_mul_overflow(times, size, &total) ||
      __builtin_mul_overflow(total, int64_t{sizeof(Value)}, &total))
    return fail("the repeated list is too long");
  TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(static_cast<size_t>(total)));
  std::vector<Value> items;
  for (int64_t i = 0; i < times && size > 0; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return make_list(budget, std::move(items), list.form);
}

Result<Value> add_texts(Budget& budget, const Text& a, const Text& b) {
  const bool markup = a.is_markup() || b.is_markup();
  TextBuilder builder(budget);
  TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(a.size() + b.size()));
  builder.expect(a.size() + b.size());
  for (const Text* part : {&a, &b}) {
    if (markup && !part->is_markup()) {
      TSR_ASSIGN_OR_RETURN(const Text escaped, escape_html(budget, *part));
      TSR_RETURN_IF_ERROR(builder.add(escaped));
    } else {
      TSR_RETURN_IF_ERROR(builder.add(*part));
    }
  }
  TSR_ASSIGN_OR_RETURN(const Text sum, builder.finish());
  return Value(sum.with_markup(markup));
}

struct SliceRange {
  int64_t begin, step, count;
};

// The indices that a Python slice of `length` items takes.
Result<SliceRange> resolve(int64_t length, const Value& begin, const Value& end, const Value& step) {
  int64_t bounds[3] = {};
  bool given[3] = {};
  const Value* const values[] = {&begin, &end, &step};
  for (int i = 0; i < 3; ++i) {
    if (is<None>(*values[i])) continue;
    const auto integer = as_integer(*values[i]);
    if (!integer) return fail(format("bounds of a slice are integers, found a {}", type_name(*values[i])));
    bounds[i] = *integer;
    given[i] = true;
  }
  const int64_t stride = given[2] ? std::clamp<int64_t>(bounds[2], -INT32_MAX, INT32_MAX) : 1;
  if (stride == 0) return fail("the step of a slice cannot be 0");
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  const auto place = [&](int i, int64_t initial) {
    if (!given[i]) return initial;
    return std::clamp(bounds[i] < 0 ? bounds[i] + length : bounds[i], low, high);
  };
  const int64_t first = place(0, stride > 0 ? low : high), last = place(1, stride > 0 ? high : low);
  const int64_t distance = stride > 0 ? last - first : first - last;
  const int64_t size = stride > 0 ? stride : -stride;
  return SliceRange{first, stride, distance > 0 ? (distance + size - 1) / size : 0};
}

Result<Value> slice_text(Budget& budget, const Text& text, const SliceRange& range) {
  if (range.count == 0) return Value(Text());
  if (range.step == 1) {
    TSR_RETURN_IF_ERROR(budget.spend_bytes(text.is_ascii() ? 0 : text.size()));
    TSR_ASSIGN_OR_RETURN(
        Text part, slice(budget, text, text.byte_of(range.begin), text.byte_of(range.begin + range.count)));
    return Value(std::move(part));
  }
  TSR_RETURN_IF_ERROR(budget.spend_characters(text.size()));
  std::vector<size_t> begins;
  TSR_ASSIGN_OR_RETURN(const Lease room,
                       budget.lease((static_cast<size_t>(text.length()) + 1) * sizeof(size_t)));
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    begins.push_back(at);
    (void)code_point_at(text.bytes(), at, size);
  }
  begins.push_back(text.size());
  TextBuilder builder(budget);
  for (int64_t i = 0; i < range.count; ++i) {
    const auto index = static_cast<size_t>(range.begin + i * range.step);
    TSR_RETURN_IF_ERROR(builder.add(text, begins[index], begins[index + 1]));
  }
  TSR_ASSIGN_OR_RETURN(Text part, builder.finish());
  return Value(std::move(part));
}

}  // namespace

Result<Text> escape_html(Budget& budget, const Text& text) {
  struct Escape {
    char c;
    std::string_view html;
  };
  constexpr Escape kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  TSR_RETURN_IF_ERROR(budget.spend_characters(text.size()));
  TextBuilder builder(budget);
  size_t from = 0, run = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto* escape = std::ranges::find(kEscapes, text.bytes()[i], &Escape::c);
    if (escape == std::end(kEscapes)) continue;
    TSR_RETURN_IF_ERROR(builder.add(text, from, i));
    while (text.runs()[run].end <= i) ++run;
    TSR_RETURN_IF_ERROR(builder.add(escape->html, text.runs()[run].origin));
    from = i + 1;
  }
  TSR_RETURN_IF_ERROR(builder.add(text, from, text.size()));
  return builder.finish();
}

Result<Value> apply_binary(Budget& budget, Operation operation, const Value& a, const Value& b) {
  if (const auto left = as_integer(a), right = as_integer(b); left && right)
    return apply_integers(operation, *left, *right);
  if (const auto left = as_real(a), right = as_real(b); left && right) {
    TSR_RETURN_IF_ERROR(budget.spend(operation >= Operation::kFloorDivide ? 4 : 1));
    return apply_reals(operation, *left, *right);
  }
  const auto *left_text = std::get_if<Text>(&a), *right_text = std::get_if<Text>(&b);
  if (operation == Operation::kAdd && left_text && right_text)
    return add_texts(budget, *left_text, *right_text);
  if (operation == Operation::kModulo && left_text != nullptr)
    return format_percent(budget, *left_text, b, nullptr);
  const List *left = list_of(a), *right = list_of(b);
  if (operation == Operation::kAdd && left && right && left->form == right->form) {
    std::vector<Value> items;
    TSR_ASSIGN_OR_RETURN(const Lease room,
                         budget.lease((left->items.size() + right->items.size()) * sizeof(Value)));
    items.reserve(left->items.size() + right->items.size());
    items.insert(items.end(), left->items.begin(), left->items.end());
    items.insert(items.end(), right->items.begin(), right->items.end());
    return make_list(budget, std::move(items), left->form);
  }
  if (operation == Operation::kMultiply) {
    if (const auto times = as_integer(b); times && (left_text || left)) return repeat(budget, a, *times);
    if (const auto times = as_integer(a); times && (right_text || right)) return repeat(budget, b, *times);
  }
  return not_defined(operation, a, b);
}

Result<Value> negate(const Value& value) {
  if (const auto integer = as_integer(value)) return apply_integers(Operation::kSubtract, 0, *integer);
  if (const auto real = as_real(value)) return Value(-*real);
  if (is<Undefined>(value)) return fail_undefined(value);
  return fail(format("a {} has no sign", type_name(value)));
}

Result<Value> take_slice(Budget& budget, const Value& value, const Value& begin, const Value& end,
                         const Value& step) {
  if (is<Undefined>(value)) return fail_undefined(value);
  const auto* text = std::get_if<Text>(&value);
  const auto* list = std::get_if<ListPtr>(&value);
  if (text == nullptr && (list == nullptr || (*list)->form == ListForm::kView))
    return undefined(format("a {} has no slices", type_name(value)));
  TSR_ASSIGN_OR_RETURN(const int64_t length, length_of(value));
  TSR_ASSIGN_OR_RETURN(const SliceRange range, resolve(length, begin, end, step));
  if (text != nullptr) return slice_text(budget, *text, range);
  std::vector<Value> items;
  TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(static_cast<size_t>(range.count) * sizeof(Value)));
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i)
    items.push_back((*list)->items[static_cast<size_t>(range.begin + i * range.step)]);
  return make_list(budget, std::move(items), (*list)->form);
}

}  // namespace tessera::jinja
