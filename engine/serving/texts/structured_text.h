// StructuredText: a text that a grammar limits, token by token. What comes before the answer is free, up to the mark that
// the answer begins behind (AnswerStart); white space behind that mark is free, too; then the grammar holds to the end.
// A copy is another text with the same beginning. One thread at a time.
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

  // As Constraint::write_allowed. Where the text is free all tokens are allowed, except those that end texts.
  Status write_allowed(std::span<uint32_t> mask) const;
  size_t mask_words() const { return constraint_.mask_words(); }
  // Where the text is free: whether the answer that the token begins is none that the grammar allows.
  bool breaks_answer(int32_t token) const;
  // `bytes`: of the token's text. kFailedPrecondition for a token that is not allowed.
  Status accept(int32_t token, size_t bytes);

  bool is_in_answer() const { return phase_ == Phase::kAnswer; }
  // Whether the text may hold the token here although it ends texts elsewhere: a part of the mark before the answer.
  bool is_text(int32_t token) const;
  bool can_end() const { return is_in_answer() && constraint_.can_end(); }
  bool must_end() const { return is_in_answer() && constraint_.must_end(); }
  // Places in the text, in bytes: where the answer begins, SIZE_MAX before it has; and whether the text may end at a place.
  size_t answer_begin() const { return answer_begin_; }
  bool can_end_at(size_t place) const;
  // Places count from here on: the text so far belongs to what comes before.
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
    int32_t token = 0;  // -1: a part of one
  };
  std::string_view text_of(int32_t token) const;
  // Bytes of the token behind the mark; npos where it does not complete it. `tail`: of the free text, kept up to date.
  size_t bytes_behind_mark(std::string_view text, std::string& tail) const;
  void begin_answer(size_t place);
  void note(size_t end, int32_t token) { places_.push_back({end, token}); }

  std::shared_ptr<const Shared> state_;
  std::shared_ptr<const grammar::TokenBytes> tokens_;
  grammar::Constraint constraint_;
  std::string mark_;  // that ends the free text
  std::string tail_;  // the free text's end, as far as the mark may have begun in it
  Phase phase_ = Phase::kAnswer;
  size_t size_ = 0, answer_begin_ = 0, space_ = 0;  // bytes; space_: behind the mark
  std::vector<Place> places_;                       // of what the constraint has accepted
};

}  // namespace tessera
