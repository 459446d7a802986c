// Filters: functions applied by `|`. Tables are in text_filters.cc and sequence_filters.cc.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/arguments.h"

namespace tessera::jinja {

class Evaluator;

struct FilterEntry {
  std::string_view name;
  Result<Value> (*apply)(Evaluator& evaluator, const Value& value, const Arguments& arguments);
};
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();

const FilterEntry* find_filter(std::string_view name);  // null: unknown
// kUnsupported, with the nearest names. Longer names are truncated.
inline constexpr size_t kMostQuotedName = 64;
Status unknown_filter(std::string_view name);

}  // namespace tessera::jinja
