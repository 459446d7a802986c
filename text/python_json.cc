#include "text/python_json.h"

#include <algorithm>
#include <iterator>

namespace tessera {

std::string strict_json(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string strict;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\' && i + 1 < text.size()) {
      strict += c;
      strict += text[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    const auto* const word = std::ranges::find_if(kWords, [&](std::string_view each) { return text.substr(i).starts_with(each); });
    if (in_string || word == std::end(kWords)) {
      strict += c;
      continue;
    }
    strict += R"({"__float__": ")";
    strict += *word;
    strict += "\"}";
    i += word->size() - 1;
  }
  return strict;
}

Result<Json> parse_python_json(std::string_view text, std::string_view what) {
  if (text.size() > kMostJsonBytes) return parse_json(text, what);
  const std::string strict = strict_json(text);
  return parse_json(strict, what, strict.size());
}

}  // namespace tessera
