// PromptNote: tells the log, once, of prompts that are text and hold control tokens written out, which are read as letters
// without the option `special`. Any thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/runtime.h"
#include "text/tokenizer/written_control.h"

namespace tessera {

class PromptNote {
 public:
  // `tokenizer` may be null: then nothing is told.
  explicit PromptNote(const Tokenizer* tokenizer) {
    if (tokenizer != nullptr) control_.emplace(tokenizer->data());
  }

  void tell(std::string_view prompt, bool special, Runtime& runtime) {
    constexpr int32_t kWarning = 2;
    if (special || !control_ || told_) return;
    const TokenNameCounts counts = control_->count(prompt);
    if (!counts.empty() && !told_.exchange(true))
      runtime.log().add(kWarning, written_control_note(counts, "the prompt holds", "they are read as letters"));
  }

 private:
  std::optional<WrittenControlTokens> control_;
  std::atomic<bool> told_{false};
};

// {"tokens": {text: count}, "note"}, of any text.
std::string written_control_json(const Tokenizer& tokenizer, std::string_view text);

}  // namespace tessera
