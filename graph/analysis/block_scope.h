// Blocks of a model, by the scopes of its nodes.
#pragma once

#include <algorithm>
#include <string_view>

namespace tessera {

// Returns the part of a scope up to its first number: "block.3" of "block.3.ffn"; empty without a number.
inline std::string_view block_scope(std::string_view scope) {
  for (size_t begin = 0; begin < scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    const std::string_view part = scope.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos)
      return scope.substr(0, end);
    begin = end + 1;
  }
  return {};
}

}  // namespace tessera
