// Arguments of a call, and their binding to parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace tessera::jinja {

// BoundArguments: arguments by parameter number. Absent ones have defaults; the getters check types.
class BoundArguments {
 public:
  BoundArguments(std::string_view function, std::vector<std::string_view> names,
                 std::vector<const Value*> values)
      : function_(function), names_(std::move(names)), values_(std::move(values)) {}

  bool has(size_t i) const { return values_[i] != nullptr; }
  // Absent, or None.
  bool is_none(size_t i) const { return !has(i) || is<None>(*values_[i]); }
  const Value& value(size_t i) const { return *values_[i]; }
  Result<const Value*> required(size_t i) const;
  Result<int64_t> integer(size_t i, std::optional<int64_t> initial = {}) const;
  Result<Text> text(size_t i, std::optional<Text> initial = {}) const;
  bool flag(size_t i, bool initial = false) const { return has(i) ? is_truthy(*values_[i]) : initial; }

 private:
  Status wrong_type(size_t i, std::string_view wanted) const;
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // An error for too many, unknown or duplicate arguments.
  Result<BoundArguments> bind(std::string_view function, std::initializer_list<std::string_view> names) const;
};

}  // namespace tessera::jinja
