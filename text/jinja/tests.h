// Tests: functions applied by `is`.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/arguments.h"

namespace tessera::jinja {

class Evaluator;

struct TestEntry {
  std::string_view name;
  Result<bool> (*apply)(Evaluator& evaluator, const Value& value, const Arguments& arguments);
};
std::span<const TestEntry> all_tests();
const TestEntry* find_test(std::string_view name);  // null: unknown
Status unknown_test(std::string_view name);

}  // namespace tessera::jinja
