// StructuredText: a text constrained by a grammar, token by token. Text before the
// answer is free up to the mark (AnswerStart), as is white space after it; from there
// on the grammar applies. A copy continues independently. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serving/texts/answer_start.h"
#include "engine/serving/texts/grammar_source.h"
#include "text/grammar/constraint.h"

namespace tessera {

class StructuredText {
 public:
  StructuredText(GrammarSource source, grammar::Constraint constraint, AnswerStart start);

  // As Constraint::write_allowed. Free text allows all tokens except end tokens.
  Status write_allowed(std::span<uint32_t> mask) const;
  size_t mask_words() const { return constraint_.mask_words(); }
  // In free text: whether the token begins an answer that the grammar forbids.
  bool breaks_answer(int32_t token) const;
  // `bytes`: size of the token's text. kFailedPrecondition for a forbidden token.
  Status accept(int32_t token, size_t bytes);

  bool is_in_answer() const { return phase_ == Phase::kAnswer; }
  // Whether an end token is text here: part of the mark before the answer.
  bool is_text(int32_t token) const;
  bool can_end() const { return is_in_answer() && constraint_.can_end(); }
  bool must_end() const { return is_in_answer() && constraint_.must_end(); }
  // Byte offsets in the text: the answer's begin, SIZE_MAX before it; and whether the text may end at an offset.
  size_t answer_begin() const { return answer_begin_; }
  bool can_end_at(size_t place) const;
  // Counts offsets from here on; the text so far precedes the answer.
  void restart_places();

  const GrammarSource& source() const { return state_->source; }
  const AnswerStart& start() const { return state_->start; }

 private:
  enum class Phase : uint8_t {
    kStart,   // the answer, or the token that opens reasoning
    kFree,    // up to the mark
    kSpace,   // behind the mark
    kAnswer,  // the grammar
  };
  struct Shared {
    GrammarSource source;
    AnswerStart start;
  };
  struct Place {
    size_t end = 0;     // in the text, of the token
    int32_t token = 0;  // -1: part of a token
  };
  std::string_view text_of(int32_t token) const;
  // Bytes of the token after the mark; npos if the mark is not completed. `tail`: end of the free text, updated.
  size_t bytes_behind_mark(std::string_view text, std::string& tail) const;
  void begin_answer(size_t place);
  void note(size_t end, int32_t token) { places_.push_back({end, token}); }

  std::shared_ptr<const Shared> state_;
  std::shared_ptr<const grammar::TokenBytes> tokens_;
  grammar::Constraint constraint_;
  std::string mark_;  // the mark that ends free text
  std::string tail_;  // end of the free text that may begin the mark
  Phase phase_ = Phase::kAnswer;
  size_t size_ = 0, answer_begin_ = 0, space_ = 0;  // bytes; space_: after the mark
  std::vector<Place> places_;                       // of tokens accepted by the constraint
};

}  // namespace tessera
