#include <locale.h>

#include <algorithm>
#include <ctime>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/printing.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

constexpr int64_t kMostRange = 100'000;  // as Jinja2's sandbox

Result<Value> make_range(Budget& budget, const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) return fail("range takes one to three integers");
  for (size_t i = 0; i < count; ++i) {
    const Value& value = arguments.positional[i];
    if (is<Undefined>(value)) return fail_undefined(value);
    const auto integer = as_integer(value);
    if (!integer) return fail(format("range takes integers, found a {}", type_name(value)));
    bounds[count == 1 ? 1 : i] = *integer;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return fail("range: the step is 0");
  const bool up = step > 0;
  if (up ? begin >= end : begin <= end) return make_list(budget, {}, ListForm::kRange);
  // Differences of unsigned 64-bit integers do not overflow.
  const auto unsigned_of = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t distance =
      up ? unsigned_of(end) - unsigned_of(begin) : unsigned_of(begin) - unsigned_of(end);
  const uint64_t stride = up ? unsigned_of(step) : uint64_t{0} - unsigned_of(step);
  const uint64_t items_count = (distance - 1) / stride + 1;
  if (items_count > uint64_t{kMostRange})
    return fail(format("range has {} numbers, the sandbox of templates allows {}", items_count, kMostRange));
  std::vector<Value> items;
  items.reserve(items_count);
  int64_t value = begin;
  for (uint64_t i = 0; i < items_count; ++i) {
    items.emplace_back(value);
    if (i + 1 < items_count) value += step;
  }
  return make_list(budget, std::move(items), ListForm::kRange);
}

// The items of dict(mapping or pairs, name=value...).
Result<std::vector<std::pair<Value, Value>>> dict_items(Budget& budget, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) return fail("dict takes at most one argument without a name");
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (const auto* dict = std::get_if<DictPtr>(&first)) {
      TSR_RETURN_IF_ERROR(budget.spend(static_cast<int64_t>((*dict)->items.size())));
      items = (*dict)->items;
    } else {
      TSR_ASSIGN_OR_RETURN(const ListPtr pairs, iterate(budget, first));
      for (const Value& each : pairs->items) {
        TSR_ASSIGN_OR_RETURN(const ListPtr pair, iterate(budget, each));
        if (pair->items.size() != 2)
          return fail(format("dict wants pairs, found {} items", pair->items.size()));
        items.emplace_back(pair->items[0], pair->items[1]);
      }
    }
  }
  TSR_RETURN_IF_ERROR(budget.spend(static_cast<int64_t>(arguments.named.size())));
  for (const auto& [name, value] : arguments.named) items.emplace_back(Text::of(name), value);
  return items;
}

// strftime in the C locale, independent of the host application.
Result<Value> format_time(Budget& budget, int64_t now_s, const Text& pattern) {
  constexpr int64_t kStepsPerByte = 16, kStepsOfLocale = 200;
  const auto time = static_cast<std::time_t>(now_s);
  std::tm local{};
  if (localtime_r(&time, &local) == nullptr) return fail(format("the time {} has no date", now_s));
  if (pattern.size() > 1024) return fail("strftime_now: the format is longer than 1024 bytes");
  if (pattern.empty()) return Value(Text());
  TSR_RETURN_IF_ERROR(budget.spend(kStepsOfLocale + kStepsPerByte * static_cast<int64_t>(pattern.size())));
  const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  if (locale == nullptr) return Status::out_of_memory();
  std::string buffer(64 * pattern.size() + 64, '\0');
  const std::string wanted(pattern.bytes());
  buffer.resize(strftime_l(buffer.data(), buffer.size(), wanted.c_str(), &local, locale));
  freelocale(locale);
  return Value(Text::of(buffer, pattern.source()));
}

}  // namespace

Result<Value> Evaluator::call(const Value& function, const Arguments& arguments) {
  if (is<Undefined>(function)) return fail_undefined(function);
  if (const auto* macro = std::get_if<std::shared_ptr<const Macro>>(&function))
    return call_macro(**macro, arguments);
  if (const auto* builtin = std::get_if<Builtin>(&function)) return call_builtin(*builtin, arguments);
  if (const auto* method = std::get_if<std::shared_ptr<const Method>>(&function))
    return call_method(**method, arguments);
  if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&function)) return call_loop(**loop, arguments);
  return fail(format("a {} cannot be called", type_name(function)));
}

Result<Value> Evaluator::call_builtin(Builtin builtin, const Arguments& arguments) {
  switch (builtin) {
    case Builtin::kRange: return make_range(budget_, arguments);
    case Builtin::kDict: {
      TSR_ASSIGN_OR_RETURN(auto items, dict_items(budget_, arguments));
      return make_dict(budget_, std::move(items));
    }
    case Builtin::kNamespace: return make_namespace(arguments);
    case Builtin::kRaiseException: {
      TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("raise_exception", {"message"}));
      TSR_ASSIGN_OR_RETURN(const Text message, bound.text(0));
      return fail(format("the template refuses its input: {}", message.bytes()));
    }
    case Builtin::kStrftimeNow: {
      TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("strftime_now", {"format"}));
      TSR_ASSIGN_OR_RETURN(const Text pattern, bound.text(0));
      return format_time(budget_, now_s_, pattern);
    }
    default: break;
  }
  constexpr std::string_view kNames[] = {"cycler", "joiner", "lipsum"};
  return Status(StatusCode::kUnsupported,
                format("the function '{}' is not supported in chat templates",
                       kNames[static_cast<size_t>(builtin) - static_cast<size_t>(Builtin::kCycler)]));
}

Result<Value> Evaluator::make_namespace(const Arguments& arguments) {
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(2));
  TSR_ASSIGN_OR_RETURN(auto items, dict_items(budget_, arguments));
  auto space = std::make_shared<Namespace>();
  TSR_ASSIGN_OR_RETURN(space->lease, budget_.lease(sizeof(Namespace) + items.size() * 2 * sizeof(Value)));
  for (auto& [key, value] : items) {
    const auto* name = std::get_if<Text>(&key);
    if (name == nullptr) return fail("namespace: names are texts");
    if (name->bytes().starts_with('_'))
      return fail(format("namespace: '{}' begins with '_', which templates may not use", name->bytes()));
    TSR_RETURN_IF_ERROR(budget_.spend_allocations(1));
    TSR_ASSIGN_OR_RETURN(Value * held, find_variable(*space, name->bytes()));
    if (held != nullptr)
      *held = std::move(value);
    else
      space->variables.emplace_back(name->bytes(), std::move(value));
  }
  namespaces_.push_back(space);
  return Value(std::move(space));
}

Result<Value> Evaluator::make_macro(const Node& node, const ScopePtr& scope) {
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(5));
  captured_scopes_.push_back(scope);
  return Value(std::shared_ptr<const Macro>(std::make_shared<Macro>(Macro{&node, scope})));
}

Result<Value> Evaluator::call_macro(const Macro& macro, const Arguments& arguments) {
  const Node& node = *macro.node;
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(2 + node.parameters.size()));
  const ScopePtr scope = inner(macro.scope);
  std::vector<bool> used(arguments.named.size(), false);
  const auto take_named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i)
      if (!used[i] && arguments.named[i].first == name) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    return nullptr;
  };
  const size_t parameters = node.parameters.size();
  // Each parameter searches the named arguments.
  TSR_RETURN_IF_ERROR(budget_.spend_items(parameters + arguments.positional.size()));
  TSR_RETURN_IF_ERROR(budget_.spend_items(parameters * arguments.named.size() / 2));
  std::vector<std::pair<const std::string*, const Node*>> missing;
  for (size_t i = 0; i < parameters; ++i) {
    const auto& [name, initial] = node.parameters[i];
    const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : take_named(name);
    if (given != nullptr)
      TSR_RETURN_IF_ERROR(set_variable(*scope, name, *given));
    else
      missing.emplace_back(&name, initial);
  }
  if (node.takes_caller) {
    const Value* caller = take_named("caller");
    TSR_RETURN_IF_ERROR(
        set_variable(*scope, "caller",
                     caller != nullptr ? *caller : undefined("the macro was called without a caller")));
  }
  std::vector<std::pair<Value, Value>> rest;
  for (size_t i = 0; i < arguments.named.size(); ++i)
    if (!used[i]) rest.emplace_back(Text::of(arguments.named[i].first), arguments.named[i].second);
  if (!rest.empty() && !node.takes_keywords)
    return fail(
        format("macro '{}' takes no argument '{}'", node.name, std::get<Text>(rest[0].first).bytes()));
  if (node.takes_keywords) {
    TSR_ASSIGN_OR_RETURN(Value keywords, make_dict(budget_, std::move(rest)));
    TSR_RETURN_IF_ERROR(set_variable(*scope, "kwargs", std::move(keywords)));
  }
  if (arguments.positional.size() > parameters && !node.takes_more)
    return fail(format("macro '{}' takes at most {} arguments, found {}", node.name, parameters,
                       arguments.positional.size()));
  if (node.takes_more) {
    std::vector<Value> more;
    if (arguments.positional.size() > parameters)
      more.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(parameters),
                  arguments.positional.end());
    TSR_ASSIGN_OR_RETURN(Value tuple, make_list(budget_, std::move(more), ListForm::kTuple));
    TSR_RETURN_IF_ERROR(set_variable(*scope, "varargs", std::move(tuple)));
  }
  for (const auto& [name, initial] : missing) {
    if (initial == nullptr) {
      TSR_RETURN_IF_ERROR(
          set_variable(*scope, *name, undefined(format("parameter '{}' was not given", *name))));
      continue;
    }
    TSR_ASSIGN_OR_RETURN(Value value, evaluate(*initial, scope));
    TSR_RETURN_IF_ERROR(set_variable(*scope, *name, std::move(value)));
  }
  TextBuilder out(budget_);
  TSR_ASSIGN_OR_RETURN(const Flow flow, execute(node.body, scope, out));
  TSR_CHECK(flow == Flow::kNormal, "a macro was left by a loop's control");
  TSR_ASSIGN_OR_RETURN(Text text, out.finish());
  return Value(std::move(text));
}

Result<Value> Evaluator::call_method(const Method& method, const Arguments& arguments) {
  TSR_RETURN_IF_ERROR(spend_operands(method.self, arguments));
  if (const auto* text = std::get_if<Text>(&method.self))
    return call_text_method(*this, *text, method.name, arguments);
  if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&method.self))
    return call_loop_method(**loop, method.name, arguments);
  return call_container_method(budget_, method.self, method.name, arguments);
}

Result<Value> Evaluator::call_loop_method(Loop& loop, std::string_view name, const Arguments& arguments) {
  if (!arguments.named.empty()) return fail(format("loop.{} takes no named arguments", name));
  const std::vector<Value>& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) return fail("loop.cycle wants at least one value");
    return values[loop.index0 % values.size()];
  }
  bool same = loop.has_changed && loop.changed.size() == values.size();
  for (size_t i = 0; i < values.size() && same; ++i) {
    TSR_ASSIGN_OR_RETURN(same, are_equal(budget_, loop.changed[i], values[i]));
  }
  // Values that cannot refer to the loop.
  for (const Value& value : values)
    if (!is<Text>(value) && !is_number(value) && !is<None>(value) && !is<Undefined>(value))
      return Status(StatusCode::kUnsupported,
                    format("loop.changed of a {} is not supported", type_name(value)));
  loop.changed = values;
  loop.has_changed = true;
  return Value(!same);
}

Result<Value> Evaluator::call_loop(Loop& loop, const Arguments& arguments) {
  if (loop.recursive == nullptr) return fail("'loop' can be called in a loop that is marked recursive");
  TSR_ASSIGN_OR_RETURN(const BoundArguments bound, arguments.bind("loop", {"iterable"}));
  TSR_ASSIGN_OR_RETURN(const Value* iterable, bound.required(0));
  TextBuilder out(budget_);
  TSR_ASSIGN_OR_RETURN(const Flow flow,
                       run_loop(*loop.recursive, loop.scope, *iterable, loop.depth0 + 1, out));
  if (flow != Flow::kNormal) return fail("a loop that was called cannot leave the loop around it");
  TSR_ASSIGN_OR_RETURN(Text text, out.finish());
  return Value(std::move(text));
}

// Fields are "", "0", "name", "name.attribute", "0[key]"; "!r" and "!s" convert, ":" begins a format.
Result<Value> Evaluator::format_text(const Text& pattern, const Arguments& arguments) {
  const std::string_view bytes = pattern.bytes();
  TSR_RETURN_IF_ERROR(budget_.spend_characters(bytes.size()));
  TextBuilder out(budget_);
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    TSR_RETURN_IF_ERROR(budget_.spend(2));  // a field, or the text before it
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      TSR_RETURN_IF_ERROR(out.add(pattern, at, at + 1));
      at += 2;
      continue;
    }
    if (c == '}') return fail("str.format: a '}' without its '{'");
    if (c != '{') {
      const size_t end = std::min(bytes.find_first_of("{}", at), bytes.size());
      TSR_RETURN_IF_ERROR(out.add(pattern, at, end));
      at = end;
      continue;
    }
    const size_t end = bytes.find('}', at);
    if (end == std::string_view::npos) return fail("str.format: a '{' without its '}'");
    std::string_view field = bytes.substr(at + 1, end - at - 1);
    at = end + 1;
    if (field.find('{') != std::string_view::npos)
      return Status(StatusCode::kUnsupported, "str.format: fields inside of formats are not supported");
    std::string_view specification;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      specification = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != field.size()) return fail("str.format: '!' is followed by one of r and s");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    const std::string_view first = field.substr(0, field.find_first_of(".["));
    Value value;
    const auto number =
        first.empty() ? std::optional<int64_t>(static_cast<int64_t>(next++)) : parse_i64(first);
    if (number) {
      if (*number < 0 || static_cast<size_t>(*number) >= arguments.positional.size())
        return fail(format("str.format: there is no argument {}", *number));
      value = arguments.positional[static_cast<size_t>(*number)];
    } else {
      TSR_RETURN_IF_ERROR(budget_.spend_items(arguments.named.size()));
      const auto named = std::ranges::find(arguments.named, first,
                                           [](const auto& each) { return std::string_view(each.first); });
      if (named == arguments.named.end()) return fail(format("str.format: there is no argument '{}'", first));
      value = named->second;
    }
    for (std::string_view rest = field.substr(first.size()); !rest.empty();) {
      const bool is_item = rest[0] == '[';
      const size_t stop = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == std::string_view::npos) return fail("str.format: a '[' without its ']'");
      const std::string_view name = rest.substr(1, stop - 1);
      const auto index = parse_i64(name);
      const Value key = is_item && index ? Value(*index) : Value(Text::of(name));
      TSR_ASSIGN_OR_RETURN(value, is_item ? get_item(value, key) : get_attribute(value, name));
      rest.remove_prefix(is_item ? stop + 1 : stop);
    }
    if (conversion != 0 && conversion != 'r' && conversion != 's')
      return fail("str.format: '!' is followed by one of r and s");
    if (conversion != 0) {
      TSR_ASSIGN_OR_RETURN(Text text,
                           conversion == 'r' ? print_quoted(budget_, value) : print(budget_, value));
      value = std::move(text);
    }
    TSR_ASSIGN_OR_RETURN(const Text text, format_value(budget_, value, specification));
    TSR_RETURN_IF_ERROR(out.add(text));
  }
  TSR_ASSIGN_OR_RETURN(Text text, out.finish());
  return Value(std::move(text));
}

}  // namespace tessera::jinja
