// ToolChoice: whether the answer to a conversation calls tools: option tool_choice of requests. A value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/sampling/chat.h"
#include "graph/base/result.h"
#include "text/answer/call_grammar.h"
#include "text/json.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,      // the model decides
    kNone,      // the model sees no tools, and no text is a call
    kRequired,  // calls alone
    kNamed,     // one call of a tool
  } kind = Kind::kAuto;
  std::string name;  // of kNamed

  static ToolChoice of(std::string_view option);
  bool obliges() const { return kind == Kind::kRequired || kind == Kind::kNamed; }
  std::string_view text() const;  // the option's
  // kInvalidArgument for obliged calls without tools, and of a tool that is not there. tools: null without option.
  Status check(const Json& tools) const;
};

// The answers that are calls, to a rendered prompt. `continues`: the prompt ends within an answer.
CallGrammar obliged_calls(const ToolChoice& choice, Json tools, const Chat& chat, const Tokenizer& tokenizer,
                          std::string_view prompt, bool continues);

}  // namespace tessera
