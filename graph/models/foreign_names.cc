#include "graph/models/foreign_names.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::string_view kBlock = "block.";

// Returns `pattern` with `number` in place of each '#'.
std::string filled(std::string_view pattern, std::string_view number) {
  std::string text;
  for (const char c : pattern) {
    if (c == '#')
      text += number;
    else
      text += c;
  }
  return text;
}

}  // namespace

std::optional<ForeignName> ForeignNames::find(std::string_view parameter) const {
  std::string pattern(parameter), number;
  if (parameter.starts_with(kBlock)) {
    const size_t dot = parameter.find('.', kBlock.size());
    if (dot == parameter.npos) return std::nullopt;
    number = parameter.substr(kBlock.size(), dot - kBlock.size());
    pattern = std::string(kBlock) + "#" + std::string(parameter.substr(dot));
  }
  for (const std::span<const NameRule> table : tables_) {
    const auto rule = std::ranges::find(table, std::string_view(pattern), &NameRule::ours);
    if (rule == table.end()) continue;
    ForeignName name{filled(rule->theirs, number), rule->change, {}};
    size_t parts = 0;
    for (const NameRule& other : table)
      if (other.theirs == rule->theirs && parts < name.parts.size())
        name.parts[parts++] = filled(other.ours, number);
    if (parts == 1) name.parts = {};
    return name;
  }
  return std::nullopt;
}

}  // namespace tessera
