#include "chat_answer.h"

#include <unistd.h>

#include <iostream>

namespace cli {

namespace {

constexpr const char *kDim = "\x1b[2m", *kPlain = "\x1b[0m";

// Returns the end of the prompt, which decides where an answer begins.
std::string end_of_prompt(const std::string& prompt) {
  size_t begin = prompt.size() > 512 ? prompt.size() - 512 : 0;
  while (begin < prompt.size() && (prompt[begin] & 0xC0) == 0x80) ++begin;
  const size_t nul = prompt.rfind('\0');
  return prompt.substr(nul != std::string::npos && nul >= begin ? nul + 1 : begin);
}

std::string member(const Json& message, const char* key) {
  return message.contains(key) ? message[key].get<std::string>() : std::string();
}

}  // namespace

ChatAnswer::ChatAnswer(const tsr_chat* chat, const std::string& prompt, const std::string& tools,
                       bool is_shown, bool is_quiet)
    : chat_(chat),
      partial_(make<Options>(tsr_options_new)),
      whole_(make<Options>(tsr_options_new)),
      is_shown_(is_shown),
      shows_reasoning_(is_shown && !is_quiet) {
  for (const Options* options : {&partial_, &whole_}) {
    set(*options, "prompt", end_of_prompt(prompt));
    if (!tools.empty()) set(*options, "tools", tools);
  }
  set(partial_, "partial", int64_t{1});
}

Json ChatAnswer::parse(bool is_partial) {
  return Json::parse(text(tsr_chat_parse, chat_,
                          static_cast<const tsr_options*>((is_partial ? partial_ : whole_).get()),
                          static_cast<const char*>(text_.data()), text_.size()));
}

void ChatAnswer::show(const Json& message) {
  if (const std::string reasoning = member(message, "reasoning_content");
      shows_reasoning_ && reasoning.size() > shown_reasoning_) {
    if (shown_reasoning_ == 0 && isatty(STDERR_FILENO) == 1) {
      std::cerr << kDim;
      is_dimmed_ = true;
    }
    std::cerr << reasoning.substr(shown_reasoning_) << std::flush;
    shown_reasoning_ = reasoning.size();
  }
  if (const std::string content = member(message, "content"); content.size() > shown_content_) {
    if (shown_content_ == 0) end_reasoning();
    std::cout << content.substr(shown_content_) << std::flush;
    shown_content_ = content.size();
  }
}

void ChatAnswer::end_reasoning() {
  if (is_dimmed_) std::cerr << kPlain;
  if (shown_reasoning_ > 0) std::cerr << "\n\n" << std::flush;
  is_dimmed_ = false;
  shows_reasoning_ = false;
}

void ChatAnswer::add(std::string_view piece) {
  text_ += piece;
  if (is_shown_) show(parse(true));
}

Json ChatAnswer::finish() {
  const Json message = parse(false);
  if (!is_shown_) return message;
  show(message);
  if (shown_content_ == 0) end_reasoning();
  if (message.contains("tool_calls"))
    for (const Json& call : message["tool_calls"]) {
      if (shown_content_ > 0) std::cout << '\n';
      shown_content_ = 1;
      std::cout << "-> " << call["function"]["name"].get<std::string>() << ' '
                << call["function"]["arguments"].dump() << std::flush;
    }
  return message;
}

}  // namespace cli
