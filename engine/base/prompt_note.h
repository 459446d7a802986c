// PromptNote: warns once in the log if a text prompt holds control tokens written
// out, which count as letters unless the option `special` is set. Any thread.
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
  // `tokenizer` may be null: nothing is logged.
  explicit PromptNote(const Tokenizer* tokenizer) {
    if (tokenizer != nullptr) control_.emplace(tokenizer->data());
  }

  void warn(std::string_view prompt, bool special, Runtime& runtime) {
    constexpr int32_t kWarning = 2;
    if (special || !control_ || has_warned_) return;
    const TokenNameCounts counts = control_->count(prompt);
    if (!counts.empty() && !has_warned_.exchange(true))
      runtime.log().add(kWarning, written_control_note(counts, "the prompt holds", "they are tokenized as plain text"));
  }

 private:
  std::optional<WrittenControlTokens> control_;
  std::atomic<bool> has_warned_{false};
};

// {"tokens": {text: count}, "note"} for any text.
std::string written_control_json(const Tokenizer& tokenizer, std::string_view text);

}  // namespace tessera
