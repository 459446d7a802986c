#include "engine/base/prompt_note.h"

#include "text/json.h"

namespace tessera {

std::string written_control_json(const Tokenizer& tokenizer, std::string_view text) {
  const TokenNameCounts counts = WrittenControlTokens(tokenizer.data()).count(text);
  const std::string note = written_control_note(counts, "the text holds", "they are tokenized as plain text");
  return dump(Json{{"tokens", counts}, {"note", note}});
}

}  // namespace tessera
