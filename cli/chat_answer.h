// ChatAnswer: a streamed answer, parsed as a message. Its content goes to standard output as it is
// generated, reasoning to standard error, dimmed on a terminal; calls of tools follow, a line each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "command.h"

namespace cli {

class ChatAnswer {
 public:
  // `prompt`: the text before it. `tools`: JSON, or empty. Without `is_shown` nothing is printed.
  ChatAnswer(const tsr_chat* chat, const std::string& prompt, const std::string& tools, bool is_shown,
             bool is_quiet);

  void add(std::string_view text);
  // {"role", "content", "reasoning_content", "tool_calls"}
  Json finish();

 private:
  Json parse(bool is_partial);
  void show(const Json& message);
  void end_reasoning();

  const tsr_chat* chat_;
  Options partial_, whole_;
  std::string text_;
  size_t shown_content_ = 0, shown_reasoning_ = 0;
  bool is_shown_, shows_reasoning_, is_dimmed_ = false;
};

}  // namespace cli
