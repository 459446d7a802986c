// CutCalls: what can be read of calls in which a text ends.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {

struct CutCalls {
  std::vector<ToolCall> whole;  // of a list, before the cut one
  std::optional<CutCall> cut;   // none: the text ends between two
};

// Arguments as JSON that goes on: {"a":1
inline std::string unclosed(const Json& arguments) {
  std::string text = dump(arguments);
  text.pop_back();
  return text;
}

// Gives `take` the list that scanner.open()[0] begins, closed behind its complete elements. Whether the last one is complete.
// `take`: whether a text is a list of calls.
template <typename Take>
bool take_whole(std::string_view text, const PayloadScanner& scanner, Take take) {
  const PayloadScanner::Bracket& list = scanner.open()[0];
  if (scanner.open().size() == 1 && take(std::string(text.substr(list.begin)) + ']')) return true;
  if (list.member > list.begin + 1) (void)take(scanner.closed(text, 0));
  return false;
}

}  // namespace tessera::answer
