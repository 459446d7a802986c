// CallParser: parses the calls at one place of an answer incrementally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {

class CallParser {
 public:
  enum class Progress : uint8_t {
    kMore,    // incomplete
    kEnd,     // all calls are parsed, up to end()
    kFailed,  // no call from raw_begin() on; the text from end() on may be something else
  };

  // The calls' text begins at byte `begin`, with the form's first mark.
  CallParser(const CallForm& form, const Json& tools, size_t begin);

  // `text` extends that of earlier calls. `is_final`: nothing follows.
  Progress advance(std::string_view text, bool is_final);
  // The calls parsed so far; a failure keeps them.
  std::vector<ToolCall>& calls() { return calls_; }
  size_t raw_begin() const { return raw_begin_; }
  size_t end() const { return at_; }
  bool is_cut() const { return is_cut_; }  // the text ended before the last mark, or within a call
  std::optional<CutCall>& cut_call() { return cut_call_; }  // the call in which it ended, after calls()

 private:
  enum class StepResult : uint8_t { kDone, kMore, kFailed };
  enum class Place : uint8_t { kSection, kStep, kAfterCall };
  enum class ParameterPlace : uint8_t { kOpen, kValue };

  StepResult run_step(std::string_view text, bool is_final);
  StepResult read_mark(std::string_view mark, std::string_view text, bool is_final);
  StepResult read_word(std::string_view text, bool is_final, std::string& word);
  StepResult read_until(std::string_view mark, std::string_view text, bool is_final, std::string& word);
  StepResult read_payload(Syntax syntax, std::string_view text, std::string_view& payload);
  StepResult read_objects(std::string_view text);
  StepResult read_python(std::string_view text);
  StepResult read_parameters(std::string_view text, bool is_final);
  Json parameter_value(std::string_view raw) const;
  StepResult find_value_end(std::string_view text, bool is_final, size_t& begin, size_t& end);
  bool take_objects(std::string_view payload);
  bool take_object(const Json& given);
  bool cut(std::string_view text);
  std::string_view next_mark() const;
  void begin_call();
  void end_call();
  bool may_end_here() const;

  const CallForm& form_;
  const Json& tools_;
  std::vector<ToolCall> calls_;
  size_t at_, raw_begin_;
  Place place_;
  size_t step_ = 0;
  bool is_cut_ = false;
  std::optional<CutCall> cut_call_;
  bool has_payload_ = false;  // the present call's arguments are complete
  ToolCall call_;
  std::vector<ToolCall> taken_;  // for kObjects and kPython
  PayloadScanner scanner_;
  bool is_scanning_ = false;
  ParameterPlace parameter_place_ = ParameterPlace::kOpen;
  std::string key_, kind_, close_;
  size_t value_begin_ = 0;
};

}  // namespace tessera::answer
