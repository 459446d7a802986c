// FormProbe: a template's renderings of probe words, from which the answer's form is derived.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace tessera::answer {

// Words that no template contains. Keys are in alphabetical order, since templates may sort them.
inline constexpr std::string_view kUserWord = "qzuserqz", kContentWord = "qzcontentqz",
                                  kReasoningWord = "qzreasonqz";
inline constexpr std::string_view kProbeNames[] = {"qzfirstqz", "qzsecondqz"};
inline constexpr std::string_view kProbeIds[] = {"qzida0001",
                                                 "qzidb0002"};  // nine letters and digits, for Mistral
inline constexpr std::string_view kProbeKeys[] = {"qzka", "qzkb", "qzkc"};
inline constexpr std::string_view kProbeValues[] = {"qzvaqz", "qzvbqz", "90517"};  // two texts and a number

struct ProbeMessage {
  bool has_content = false, has_reasoning = false;
  int calls = 0;  // at most 2
};

class FormProbe {
 public:
  explicit FormProbe(const ChatTemplate& chat);

  const std::string& prompt() const { return prompt_; }  // text after the user's words; empty if refused
  // Text after the user's words; nullopt if the template refuses.
  std::optional<std::string> render(const ProbeMessage& message) const;
  // Of an assistant's message with this content.
  std::optional<std::string> render_content(const std::string& content) const;

 private:
  std::optional<std::string> run(const Json& messages, const Json& variables,
                                 bool add_generation_prompt) const;

  const ChatTemplate& chat_;
  Json tools_, variables_;  // required by the template
  std::string prompt_;
};

}  // namespace tessera::answer
