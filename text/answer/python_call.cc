#include "text/answer/python_call.h"

#include <string>
#include <utility>

#include "graph/base/text.h"
#include "text/answer/literal.h"

namespace tessera::answer {

std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text) {
  auto parsed = parse_python_calls(text);
  if (!parsed || parsed->empty()) return std::nullopt;
  std::vector<ToolCall> calls;
  for (auto& [name, arguments] : *parsed) {
    if (name.ends_with(".call")) name.resize(name.size() - 5);  // built-in tools of Llama 3
    calls.push_back({"", std::move(name), std::move(arguments)});
  }
  return calls;
}

CutCalls read_cut_python_calls(std::string_view text, size_t begin, const PayloadScanner& scanner) {
  CutCalls calls;
  const bool is_list = text[begin] == '[';
  const auto take = [&calls](const std::string& list) {
    auto whole = read_python_calls(list);
    if (whole) calls.whole = std::move(*whole);
    return whole.has_value();
  };
  if (is_list && take_whole(text, scanner, take)) return calls;
  calls.cut.emplace();
  const size_t level = is_list ? 1 : 0;
  if (scanner.open().size() <= level) return calls;
  const size_t name = is_list ? scanner.open()[0].member : begin;
  const std::string_view word = trim(text.substr(name, scanner.open()[level].begin - name));
  if (const auto call = read_python_calls(std::string(word) + scanner.closed(text, level)); call && call->size() == 1)
    calls.cut = CutCall{"", call->front().name, unclosed(call->front().arguments)};
  return calls;
}

}  // namespace tessera::answer
