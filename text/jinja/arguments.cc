#include "text/jinja/arguments.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

}  // namespace

Result<BoundArguments> Arguments::bind(std::string_view function,
                                       std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size())
    return fail(format("{} takes at most {} arguments, found {}", function, names.size(), positional.size()));
  std::vector<const Value*> values(names.size(), nullptr);
  for (size_t i = 0; i < positional.size(); ++i) values[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto place = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (place == names.size()) return fail(format("{} has no argument '{}'", function, name));
    if (values[place] != nullptr) return fail(format("{}: argument '{}' is given twice", function, name));
    values[place] = &value;
  }
  return BoundArguments(function, names, std::move(values));
}

Status BoundArguments::wrong_type(size_t i, std::string_view wanted) const {
  if (is<Undefined>(*values_[i])) return fail_undefined(*values_[i]);
  return fail(format("{}: '{}' is a {}, wanted {}", function_, names_[i], type_name(*values_[i]), wanted));
}

Result<const Value*> BoundArguments::required(size_t i) const {
  if (has(i)) return values_[i];
  return fail(format("{} needs the argument '{}'", function_, names_[i]));
}

Result<int64_t> BoundArguments::integer(size_t i, std::optional<int64_t> initial) const {
  if (!has(i) && initial) return *initial;
  TSR_ASSIGN_OR_RETURN(const Value* value, required(i));
  if (const auto integer = as_integer(*value)) return *integer;
  return wrong_type(i, "an integer");
}

Result<Text> BoundArguments::text(size_t i, std::optional<Text> initial) const {
  if (!has(i) && initial) return *initial;
  TSR_ASSIGN_OR_RETURN(const Value* value, required(i));
  if (const auto* text = std::get_if<Text>(value)) return *text;
  return wrong_type(i, "a str");
}

}  // namespace tessera::jinja
