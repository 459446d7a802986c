#include "text/answer/answer.h"

#include <set>

#include "graph/base/hash.h"
#include "text/answer/stream.h"

namespace tessera {
namespace {

std::string call_id(uint64_t seed, uint64_t place) {
  constexpr std::string_view kCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  Hash hash;
  hash.add(seed);
  hash.add(place);
  std::string id;
  for (uint64_t rest = hash.value(); id.size() < 9; rest /= kCharacters.size())
    id += kCharacters[rest % kCharacters.size()];
  return id;
}

}  // namespace

Json message_json(const Answer& answer, uint64_t seed) {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (answer.calls.empty()) return message;
  Json calls = Json::array();
  std::set<std::string> ids;
  for (const ToolCall& call : answer.calls) {
    std::string id = call.id;
    for (uint64_t place = calls.size(); id.empty() || !ids.insert(id).second; place += answer.calls.size())
      id = call_id(seed, place);
    calls.push_back({{"id", std::move(id)},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace tessera
