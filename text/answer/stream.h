// AnswerStream: parses an answer while it is being made. What it has given as content or reasoning it never takes back:
// text is held as long as it may turn out to be a mark or a call. Reads each byte a bounded number of times; keeps the
// text. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer.h"
#include "text/answer/call_parser.h"

namespace tessera {

struct AnswerDelta {
  std::string reasoning, content;
};

class AnswerStream {
 public:
  // `form` outlives the stream.
  explicit AnswerStream(const AnswerForm& form, AnswerContext context = {});

  // What is certain now. The calls that are known so far are in answer().
  AnswerDelta add(std::string_view text);
  // The answer; nothing can be added behind it.
  Answer finish();

  const Answer& answer() const { return answer_; }

 private:
  enum class State : uint8_t { kContent, kReasoning, kCall };

  bool step();
  bool step_content();
  bool step_reasoning();
  bool step_call();
  bool try_open(size_t at, bool& is_undecided);
  bool is_end_of_turn(size_t at, bool& is_undecided) const;
  void begin_part(bool keeps_space);
  void emit_content(std::string_view text);
  void emit_reasoning(std::string_view text);
  void drop_space();

  const AnswerForm& form_;
  AnswerContext context_;
  Answer answer_;
  std::string text_;        // the opening, and all that was added
  size_t at_ = 0;           // what lies before is done with
  size_t space_begin_ = 0;  // white space from here to at_ is held
  bool is_final_ = false;
  State state_ = State::kContent;
  bool is_part_begun_ = false;        // content stands behind the last mark
  bool drops_space_ = false;          // white space at the part's beginning is the template's
  const AnswerSpan* span_ = nullptr;  // of the reasoning or of the content that is open
  std::unique_ptr<answer::CallParser> call_;
  bool mark_begins_[256] = {};
};

}  // namespace tessera
