#include "text/tokenizer/written_control.h"

#include <algorithm>
#include <functional>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

WrittenControlTokens::WrittenControlTokens(const TokenizerData& data) {
  constexpr size_t kFewestBytes = 3;  // shorter names occur in any text
  for (size_t id = 0; id < data.types.size(); ++id) {
    const std::string& name = data.tokens[id];
    if (data.types[id] != TokenType::kControl || name.size() < kFewestBytes) continue;
    names_.insert(name);
    std::vector<size_t>& sizes = sizes_[static_cast<unsigned char>(name[0])];
    if (std::ranges::find(sizes, name.size()) == sizes.end()) sizes.push_back(name.size());
  }
  for (std::vector<size_t>& sizes : sizes_) std::ranges::sort(sizes, std::greater());
}

TokenNameCounts WrittenControlTokens::count(std::string_view text) const {
  TokenNameCounts counts;
  for (size_t at = 0; at < text.size();) {
    size_t found = 1;
    for (const size_t size : sizes_[static_cast<unsigned char>(text[at])]) {
      std::string name(text.substr(at, size));
      if (!names_.contains(name)) continue;
      ++counts[std::move(name)];
      found = size;
      break;
    }
    at += found;
  }
  return counts;
}

std::string written_control_note(const TokenNameCounts& counts, std::string_view found_in,
                                 std::string_view consequence) {
  if (counts.empty()) return "";
  constexpr size_t kMostNames = 4;
  std::vector<std::string> names;
  for (const auto& [name, unused] : counts)
    if (names.size() < kMostNames) names.push_back("'" + quote(name, 64) + "'");
  return format("{} control tokens written out ({}{}), as a chat template leaves them; {}: option 'special' 1 "
                "(--special) reads them as these tokens",
                found_in, join(names, ", "), counts.size() > kMostNames ? ", ..." : "", consequence);
}

}  // namespace tessera
