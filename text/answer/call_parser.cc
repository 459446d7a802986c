#include "text/answer/call_parser.h"

#include <algorithm>
#include <iterator>

#include "graph/base/text.h"
#include "graph/base/utf8.h"
#include "text/answer/argument_value.h"
#include "text/answer/call_object.h"
#include "text/answer/cut_calls.h"
#include "text/answer/literal.h"
#include "text/answer/marker.h"
#include "text/answer/nested_value.h"
#include "text/answer/python_call.h"

namespace tessera::answer {
namespace {

// Bound of names, ids, keys and skipped text.
constexpr size_t kMostWordBytes = 256;

bool ends_word(char c) {
  return static_cast<unsigned char>(c) <= ' ' ||
         std::string_view("<{([\"'").find(c) != std::string_view::npos;
}

// Removes white space that the template writes around every value.
std::string_view without_frame(std::string_view raw, std::string_view lead, std::string_view tail) {
  if (raw.starts_with(lead)) raw.remove_prefix(lead.size());
  if (raw.ends_with(tail)) raw.remove_suffix(tail.size());
  return raw;
}

}  // namespace

CallParser::CallParser(const CallForm& form, const Json& tools, size_t begin)
    : form_(form),
      tools_(tools),
      at_(begin),
      raw_begin_(begin),
      place_(form.section_open.empty() ? Place::kStep : Place::kSection) {
  begin_call();
}

void CallParser::begin_call() {
  step_ = 0;
  has_payload_ = false;
  is_scanning_ = false;
  parameter_place_ = ParameterPlace::kOpen;
  call_ = {};
  call_.arguments = Json::object();
  taken_.clear();
}

void CallParser::end_call() {
  if (taken_.empty()) {
    calls_.push_back(std::move(call_));
  } else {
    std::ranges::move(taken_, std::back_inserter(calls_));
  }
  raw_begin_ = at_;
  begin_call();
  place_ = Place::kAfterCall;
}

std::string_view CallParser::next_mark() const {
  if (step_ + 1 < form_.steps.size())
    return form_.steps[step_ + 1].kind == CallStep::Kind::kMark
               ? std::string_view(form_.steps[step_ + 1].mark)
               : std::string_view();
  return form_.section_close;
}

bool CallParser::may_end_here() const {
  return has_payload_ && std::all_of(form_.steps.begin() + static_cast<ptrdiff_t>(step_), form_.steps.end(),
                                     [](const CallStep& step) { return step.kind == CallStep::Kind::kMark; });
}

CallParser::Progress CallParser::advance(std::string_view text, bool is_final) {
  for (;;) {
    StepResult outcome = StepResult::kDone;
    if (place_ == Place::kAfterCall) {
      const std::string_view again =
          !form_.section_open.empty() && form_.steps[0].kind == CallStep::Kind::kMark
              ? std::string_view(form_.steps[0].mark)
              : std::string_view();
      const bool takes_objects =
          !form_.section_open.empty() && form_.steps[0].kind == CallStep::Kind::kObjects;
      if (form_.section_open.empty() || (form_.section_close.empty() && again.empty())) return Progress::kEnd;
      const Matched close =
          form_.section_close.empty() ? Matched{} : match_after_space(form_.section_close, text, at_);
      if (close.match == Match::kYes) {
        at_ = raw_begin_ = close.end;
        return Progress::kEnd;
      }
      const Matched next = again.empty() ? Matched{} : match_after_space(again, text, at_);
      const size_t word = skip_bounded_space(text, at_);
      if (next.match == Match::kYes || (takes_objects && word < text.size() && text[word] == '{')) {
        place_ = Place::kStep;
        continue;
      }
      if (close.match == Match::kPartial || next.match == Match::kPartial) {
        if (!is_final) return Progress::kMore;
        is_cut_ = !form_.section_close.empty() || word < text.size();
        if (word < text.size() && close.match != Match::kPartial) cut_call_.emplace();  // its first mark
        at_ = raw_begin_ = text.size();
        return Progress::kEnd;
      }
      if (form_.section_close.empty()) return Progress::kEnd;
      return Progress::kFailed;
    }
    if (place_ == Place::kSection) {
      outcome = read_mark(form_.section_open, text, is_final);
      if (outcome == StepResult::kDone) place_ = Place::kStep;
    } else if (step_ == form_.steps.size()) {
      end_call();
      continue;
    } else {
      outcome = run_step(text, is_final);
      if (outcome == StepResult::kDone) ++step_;
    }
    if (outcome == StepResult::kDone) continue;
    if (outcome == StepResult::kMore && !is_final) return Progress::kMore;
    if (outcome == StepResult::kFailed) return Progress::kFailed;
    is_cut_ = true;
    const bool is_call = cut(text);
    at_ = text.size();
    if (!is_call) return Progress::kFailed;
    raw_begin_ = at_;
    return Progress::kEnd;
  }
}

CallParser::StepResult CallParser::run_step(std::string_view text, bool is_final) {
  const CallStep& step = form_.steps[step_];
  std::string_view payload;
  std::string word;
  switch (step.kind) {
    case CallStep::Kind::kMark: return read_mark(step.mark, text, is_final);
    case CallStep::Kind::kName: return read_word(text, is_final, call_.name);
    case CallStep::Kind::kId: return read_word(text, is_final, call_.id);
    case CallStep::Kind::kSkip: return read_until(next_mark(), text, is_final, word);
    case CallStep::Kind::kObjects: return read_objects(text);
    case CallStep::Kind::kArguments: {
      const StepResult outcome = read_payload(Syntax::kJson, text, payload);
      if (outcome != StepResult::kDone) return outcome;
      call_.arguments = parse_bounded_json(payload);
      return call_.arguments.is_object() ? StepResult::kDone : StepResult::kFailed;
    }
    case CallStep::Kind::kQuoted: {
      const StepResult outcome = read_payload(Syntax::kQuoted, text, payload);
      if (outcome != StepResult::kDone) return outcome;
      std::optional<Json> value = parse_literal(payload, form_.quote);
      if (!value || !value->is_object()) return StepResult::kFailed;
      call_.arguments = std::move(*value);
      return StepResult::kDone;
    }
    case CallStep::Kind::kPython: {
      // Models write either form after a mark common to both.
      const size_t begin = skip_bounded_space(text, at_);
      const bool is_object = begin < text.size() && text[begin] == '{';
      return is_object ? read_objects(text) : read_python(text);
    }
    case CallStep::Kind::kParameters: return read_parameters(text, is_final);
  }
  return StepResult::kFailed;
}

CallParser::StepResult CallParser::read_mark(std::string_view mark, std::string_view text, bool is_final) {
  const Matched matched = match_after_space(mark, text, at_);
  if (matched.match == Match::kYes) {
    at_ = matched.end;
    return StepResult::kDone;
  }
  if (matched.match == Match::kNo) return StepResult::kFailed;
  if (!is_final) return StepResult::kMore;
  if (may_end_here()) {
    at_ = text.size();
    is_cut_ = true;
    return StepResult::kDone;
  }
  return StepResult::kMore;
}

CallParser::StepResult CallParser::read_word(std::string_view text, bool is_final, std::string& word) {
  const std::string_view mark = next_mark();
  const size_t begin = skip_bounded_space(text, at_);
  for (size_t i = begin; i <= begin + kMostWordBytes; ++i) {
    if (i >= text.size()) return StepResult::kMore;
    const Matched matched = mark.empty() ? Matched{} : match_marker(mark, text, i);
    if (matched.match == Match::kPartial && !is_final) return StepResult::kMore;
    if (matched.match != Match::kYes && !ends_word(text[i])) continue;
    if (i == begin) return StepResult::kFailed;
    word = text.substr(begin, i - begin);
    at_ = i;
    return StepResult::kDone;
  }
  return StepResult::kFailed;
}

CallParser::StepResult CallParser::read_until(std::string_view mark, std::string_view text, bool is_final,
                                              std::string& word) {
  if (mark.empty()) return StepResult::kDone;
  for (size_t i = at_; i <= at_ + kMostWordBytes; ++i) {
    if (i >= text.size()) return StepResult::kMore;
    const Match match = match_marker(mark, text, i).match;
    if (match == Match::kPartial && !is_final) return StepResult::kMore;
    if (match != Match::kYes) continue;
    word = trim(text.substr(at_, i - at_));
    at_ = i;
    return StepResult::kDone;
  }
  return StepResult::kFailed;
}

// Reads a bracketed value; at_ stays before it until it is complete.
CallParser::StepResult CallParser::read_payload(Syntax syntax, std::string_view text,
                                                std::string_view& payload) {
  if (!is_scanning_) {
    const size_t begin = skip_bounded_space(text, at_);
    if (begin >= text.size()) return StepResult::kMore;
    if (text[begin] != '{' && text[begin] != '[') return StepResult::kFailed;
    value_begin_ = begin;
    scanner_ = PayloadScanner(syntax, begin, form_.quote);
    is_scanning_ = true;
  }
  const PayloadScanner::Progress progress = scanner_.advance(text);
  if (progress == PayloadScanner::Progress::kMore) return StepResult::kMore;
  is_scanning_ = false;
  at_ = scanner_.at();
  if (progress == PayloadScanner::Progress::kFailed) return StepResult::kFailed;
  payload = text.substr(value_begin_, at_ - value_begin_);
  has_payload_ = true;
  return StepResult::kDone;
}

CallParser::StepResult CallParser::read_objects(std::string_view text) {
  std::string_view payload;
  const StepResult outcome = read_payload(Syntax::kJson, text, payload);
  if (outcome != StepResult::kDone) return outcome;
  return take_objects(payload) ? StepResult::kDone : StepResult::kFailed;
}

CallParser::StepResult CallParser::read_python(std::string_view text) {
  if (!is_scanning_) {
    // One call: its dotted name, up to the bracket.
    const size_t begin = skip_bounded_space(text, at_);
    size_t bracket = begin;
    while (bracket < text.size() && bracket < begin + kMostWordBytes && !ends_word(text[bracket])) ++bracket;
    if (bracket >= text.size()) return StepResult::kMore;
    if ((text[bracket] != '[' || bracket != begin) && (text[bracket] != '(' || bracket == begin)) {
      at_ = bracket;
      return StepResult::kFailed;
    }
    value_begin_ = begin;
    scanner_ = PayloadScanner(Syntax::kPython, bracket);
    is_scanning_ = true;
  }
  const PayloadScanner::Progress progress = scanner_.advance(text);
  if (progress == PayloadScanner::Progress::kMore) return StepResult::kMore;
  is_scanning_ = false;
  at_ = scanner_.at();
  if (progress == PayloadScanner::Progress::kFailed) return StepResult::kFailed;
  auto calls = read_python_calls(text.substr(value_begin_, at_ - value_begin_));
  if (!calls) return StepResult::kFailed;
  taken_ = std::move(*calls);
  has_payload_ = true;
  return StepResult::kDone;
}

CallParser::StepResult CallParser::read_parameters(std::string_view text, bool is_final) {
  const ParameterForm& form = form_.parameter;
  for (;;) {
    if (parameter_place_ == ParameterPlace::kOpen) {
      const size_t begin = at_;
      const Matched open = match_after_space(form.open, text, at_);
      // The end mark of a call may share a prefix with a parameter's mark.
      const Match end = next_mark().empty() ? Match::kNo : match_after_space(next_mark(), text, at_).match;
      if (open.match == Match::kPartial && end != Match::kYes) return StepResult::kMore;
      if (end == Match::kPartial && !is_final) return StepResult::kMore;
      if (open.match != Match::kYes || end == Match::kYes) {
        // A closing mark means that no parameter follows.
        has_payload_ = skip_bounded_space(text, at_) < text.size();
        return StepResult::kDone;
      }
      at_ = open.end;
      StepResult outcome = read_until(form.middle, text, is_final, key_);
      if (outcome == StepResult::kDone) outcome = read_mark(form.middle, text, is_final);
      if (outcome == StepResult::kDone && form.has_kind) {
        outcome = read_until(form.kind_end, text, is_final, kind_);
        if (outcome == StepResult::kDone) outcome = read_mark(form.kind_end, text, is_final);
      }
      if (outcome != StepResult::kDone) {
        if (outcome == StepResult::kMore) at_ = begin;
        return outcome;
      }
      close_ = form.close;
      if (const size_t place = close_.find('\1'); place != std::string::npos) close_.replace(place, 1, key_);
      value_begin_ = at_;
      parameter_place_ = ParameterPlace::kValue;
    }
    size_t begin = 0, end = 0;
    const StepResult outcome = find_value_end(text, is_final, begin, end);
    if (outcome != StepResult::kDone) return outcome;
    if (call_.arguments.size() >= kMostMembers) return StepResult::kFailed;
    const std::string_view raw =
        without_frame(text.substr(value_begin_, begin - value_begin_), form.value_lead, form.value_tail);
    call_.arguments[key_] = parameter_value(raw);
    at_ = end;
    parameter_place_ = ParameterPlace::kOpen;
  }
}

Json CallParser::parameter_value(std::string_view raw) const {
  const ParameterForm& form = form_.parameter;
  if (form.has_kind && kind_ == form.text_kind) return raw;
  const ArgumentSchema schema = ArgumentSchema::of_tool(tools_, call_.name).property(key_);
  const bool may_nest = form.close.find('\1') != std::string::npos;
  if (may_nest && raw.starts_with(form.open) && !is_declared_text(raw, schema))
    if (std::optional<Json> nested = parse_nested_value(raw, form, schema)) return std::move(*nested);
  return argument_value(raw, schema, !form.has_kind);
}

// Finds the closing mark that a parameter or the call's end follows; within code it may occur alone.
CallParser::StepResult CallParser::find_value_end(std::string_view text, bool is_final, size_t& begin,
                                                  size_t& end) {
  for (;;) {
    const size_t place = text.find(close_[0], at_);
    if (place == std::string_view::npos) {
      at_ = text.size();
      return StepResult::kMore;
    }
    at_ = place;
    const Matched close = match_marker(close_, text, place);
    if (close.match == Match::kPartial) {
      if (!is_final) return StepResult::kMore;
    } else if (close.match == Match::kYes) {
      const Match open = match_after_space(form_.parameter.open, text, close.end).match;
      const Match after = match_after_space(next_mark(), text, close.end).match;
      const bool is_end = open == Match::kYes || after == Match::kYes;
      const bool is_open_ended = open == Match::kPartial || after == Match::kPartial;
      if (!is_end && is_open_ended && !is_final) return StepResult::kMore;
      if (is_end || is_open_ended) {
        begin = place;
        end = close.end;
        return StepResult::kDone;
      }
    }
    at_ = place + 1;
  }
}

bool CallParser::take_objects(std::string_view payload) {
  const Json value = parse_bounded_json(payload);
  if (value.is_object()) return take_object(value);
  if (!value.is_array() || value.empty()) return false;
  for (const Json& each : value)
    if (!take_object(each)) return false;
  return true;
}

bool CallParser::take_object(const Json& given) {
  std::optional<ToolCall> call = read_call_object(given, form_);
  if (call) taken_.push_back(std::move(*call));
  return call.has_value();
}

// Takes what is complete of the call in which the text ends, and describes the rest. False: it may be no call.
bool CallParser::cut(std::string_view text) {
  text = text.substr(0, text.size() - unfinished_utf8(text));
  const CallStep::Kind kind = step_ < form_.steps.size() ? form_.steps[step_].kind : CallStep::Kind::kMark;
  CutCalls calls;
  CutCall& call = calls.cut.emplace(CutCall{call_.id, call_.name, ""});
  if (kind == CallStep::Kind::kParameters) {
    call.arguments = unclosed(call_.arguments);
  } else if (has_payload_) {
    call.arguments = dump(call_.arguments);
  } else if (is_scanning_ && kind == CallStep::Kind::kArguments) {
    call.arguments = text.substr(value_begin_);
  } else if (is_scanning_ && kind == CallStep::Kind::kQuoted) {
    const std::optional<Json> members = parse_literal(scanner_.closed(text, 0), form_.quote);
    if (members && members->is_object()) call.arguments = unclosed(*members);
  } else if (is_scanning_) {
    calls = text[value_begin_] == '{' || kind == CallStep::Kind::kObjects
                ? read_cut_objects(text, scanner_, form_)
                : read_cut_python_calls(text, value_begin_, scanner_);
    taken_ = std::move(calls.whole);
  }
  const bool has_arguments = calls.cut && !calls.cut->name.empty() && !calls.cut->arguments.empty();
  if (!has_marks(form_) && taken_.empty() && !has_arguments) return false;
  std::ranges::move(taken_, std::back_inserter(calls_));
  cut_call_ = std::move(calls.cut);
  return true;
}

}  // namespace tessera::answer
