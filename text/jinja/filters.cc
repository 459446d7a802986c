#include "text/jinja/filters.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"

namespace tessera::jinja {

const FilterEntry* find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters()}) {
    const auto found = std::ranges::find(table, name, &FilterEntry::name);
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

Status unknown_filter(std::string_view name) {
  name = name.substr(0, kMostQuotedName);
  std::vector<std::string> names;
  for (const auto& table : {text_filters(), sequence_filters()})
    for (const FilterEntry& entry : table) names.emplace_back(entry.name);
  return Status(StatusCode::kUnsupported, format("the filter '{}' is not known{}", name,
                                                 nearest_hint(name, names)));
}

}  // namespace tessera::jinja
