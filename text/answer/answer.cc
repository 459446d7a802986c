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
  const size_t count = answer.calls.size() + (answer.cut_call ? 1 : 0);
  std::set<std::string> ids;
  const auto id_of = [&](std::string id, uint64_t place) {
    for (; id.empty() || !ids.insert(id).second; place += count) id = call_id(seed, place);
    return id;
  };
  if (!answer.calls.empty()) {
    Json calls = Json::array();
    for (const ToolCall& call : answer.calls)
      calls.push_back({{"id", id_of(call.id, calls.size())},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    message["tool_calls"] = std::move(calls);
  }
  if (const auto& cut = answer.cut_call)
    message["cut_call"] = {
        {"id", id_of(cut->id, count - 1)}, {"name", cut->name}, {"arguments", cut->arguments}};
  return message;
}

}  // namespace tessera
