// AnswerStream: parses an answer while it is generated. Returned text
// is final: text that may be a mark or a call is held back. Reads
// each byte a bounded number of times; keeps the text. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer.h"
#include "text/answer/call_parser.h"

namespace tessera {

struct AnswerDelta {
  std::string reasoning, content;
};

// ReasoningRange: the bytes of a part of the reasoning with its marks.
struct ReasoningRange {
  size_t begin = 0, end = 0;
};

class AnswerStream {
 public:
  // `form` must outlive the stream.
  explicit AnswerStream(const AnswerForm& form, AnswerContext context = {});

  // Returns the newly decided text. Calls parsed so far are in answer().
  AnswerDelta add(std::string_view text);
  // The complete answer; no further `add`.
  Answer finish();

  const Answer& answer() const { return answer_; }
  // In the added text, in order; after `finish`.
  std::vector<ReasoningRange> reasoning_ranges() const;

 private:
  enum class State : uint8_t { kContent, kReasoning, kCall };

  bool step();
  bool step_content();
  bool step_reasoning();
  bool step_call();
  bool try_open(size_t at, bool& is_undecided);
  bool is_end_of_turn(size_t at, bool& is_undecided) const;
  bool has_begun(std::string_view mark, size_t at) const;
  bool drop_cut_mark(size_t at);
  void begin_part(bool keeps_space);
  void emit_content(std::string_view text);
  void emit_reasoning(std::string_view text);
  void drop_space();
  void hold_joint();

  const AnswerForm& form_;
  AnswerContext context_;
  Answer answer_;
  std::string text_;        // the opening, and all added text
  size_t at_ = 0;           // text before it is processed
  size_t space_begin_ = 0;  // white space from here to at_ is held
  bool is_final_ = false;
  State state_ = State::kContent;
  bool is_part_begun_ = false;        // the present part has content
  bool drops_space_ = false;          // the part's leading white space belongs to the template
  std::optional<std::string> joint_;  // white space between content and its continuation behind reasoning
  const AnswerSpan* span_ = nullptr;  // of the open reasoning or content
  std::unique_ptr<answer::CallParser> call_;
  bool mark_begins_[256] = {};
  std::vector<ReasoningRange> reasoning_;  // in text_; the last one is open in kReasoning
};

}  // namespace tessera
