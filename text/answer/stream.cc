#include "text/answer/stream.h"

#include <algorithm>

#include "text/answer/marker.h"

namespace tessera {

using answer::CallParser;
using answer::is_space;
using answer::Match;
using answer::match_marker;
using answer::Matched;

namespace {

// The first mark of a form's calls; empty if they begin with their payload.
std::string_view first_mark(const CallForm& form) {
  if (!form.section_open.empty()) return form.section_open;
  return form.steps[0].kind == CallStep::Kind::kMark ? std::string_view(form.steps[0].mark)
                                                     : std::string_view();
}

// Whether a bare object begins like a call, with one of its keys; anything else is content early.
Matched match_object(const CallForm& form, std::string_view text, size_t at) {
  Matched best;
  for (const std::string_view key :
       {std::string_view(form.name_key), std::string_view(form.arguments_key), std::string_view("type")}) {
    std::string mark = "{ \"";
    mark.append(key).append("\"");
    const Matched matched = match_marker(mark, text, at);
    if (matched.match > best.match) best = matched;
  }
  return best;
}

}  // namespace

AnswerStream::AnswerStream(const AnswerForm& form, AnswerContext context)
    : form_(form), context_(std::move(context)), text_(context_.opening) {
  const auto note = [this](std::string_view mark) {
    if (!mark.empty()) mark_begins_[static_cast<unsigned char>(mark[0])] = true;
  };
  for (const auto* spans : {&form.reasoning, &form.content})
    for (const AnswerSpan& span : *spans) {
      note(span.open);
      note(span.close);
    }
  for (const std::string& mark : form.between) note(mark);
  for (const std::string& mark : form.ends) note(mark);
  for (const CallForm& calls : form.calls) {
    note(first_mark(calls).empty() ? "{" : first_mark(calls));
    if (first_mark(calls).empty()) note(";");
  }
}

AnswerDelta AnswerStream::add(std::string_view text) {
  text_.append(text);
  const size_t reasoning = answer_.reasoning.size(), content = answer_.content.size();
  while (step()) {
  }
  return {answer_.reasoning.substr(reasoning), answer_.content.substr(content)};
}

Answer AnswerStream::finish() {
  is_final_ = true;
  while (step()) {
  }
  std::string_view held = std::string_view(text_).substr(space_begin_);
  if (state_ == State::kReasoning) {
    answer_.is_complete = false;
    reasoning_.back().end = text_.size();
  }
  if (state_ == State::kContent && is_part_begun_) {
    if (!form_.tail.empty() && held.ends_with(form_.tail)) held.remove_suffix(form_.tail.size());
    answer_.content.append(held);
  } else if (state_ == State::kContent && answer_.reasoning.empty() && answer_.calls.empty() && !span_) {
    answer_.content.append(held == form_.lead ? std::string_view() : held);
  }
  space_begin_ = text_.size();
  return std::move(answer_);
}

std::vector<ReasoningRange> AnswerStream::reasoning_ranges() const {
  const size_t opening = context_.opening.size();
  std::vector<ReasoningRange> ranges = reasoning_;
  for (ReasoningRange& range : ranges)
    range = {range.begin - std::min(range.begin, opening), range.end - std::min(range.end, opening)};
  return ranges;
}

bool AnswerStream::step() {
  switch (state_) {
    case State::kContent: return step_content();
    case State::kReasoning: return step_reasoning();
    case State::kCall: return step_call();
  }
  return false;
}

void AnswerStream::drop_space() { space_begin_ = at_; }

// Called after a mark that ends at at_.
void AnswerStream::begin_part(bool keeps_space) {
  is_part_begun_ = false;
  drops_space_ = !keeps_space;
  drop_space();
}

// Called at a mark of reasoning within content: white space before it is kept, or else that behind it.
void AnswerStream::hold_joint() {
  if (is_part_begun_) joint_.emplace(text_, space_begin_, at_ - space_begin_);
}

void AnswerStream::emit_content(std::string_view text) {
  std::string_view held = std::string_view(text_).substr(space_begin_, at_ - space_begin_);
  if (!is_part_begun_) {
    answer_.content.append(joint_.value_or(""));
    joint_.reset();
    if (drops_space_)
      held = {};
    else if (held.starts_with(form_.lead) && answer_.content.empty())
      held.remove_prefix(form_.lead.size());
  }
  const size_t end = at_ + text.size();
  // The opening belongs to the prompt, whatever follows.
  if (at_ < context_.opening.size()) text.remove_prefix(std::min(text.size(), context_.opening.size() - at_));
  answer_.content.append(held).append(text);
  is_part_begun_ = true;
  at_ = end;
  drop_space();
}

bool AnswerStream::is_end_of_turn(size_t at, bool& is_undecided) const {
  for (const std::string& mark : form_.ends) {
    const Matched matched = match_marker(mark, text_, at);
    if (matched.match == Match::kPartial && !is_final_) is_undecided = true;
    if (matched.match != Match::kYes) continue;
    const size_t after = answer::skip_bounded_space(text_, matched.end);
    if (after < text_.size()) continue;  // incomplete
    if (is_final_) return true;
    is_undecided = true;
  }
  return false;
}

// Whether the answer ends within this mark.
bool AnswerStream::has_begun(std::string_view mark, size_t at) const {
  return !mark.empty() && match_marker(mark, text_, at).match == Match::kPartial;
}

// Drops a mark in which the answer ends. One that only calls have is a call.
bool AnswerStream::drop_cut_mark(size_t at) {
  if (!is_final_) return false;
  const bool in_content = state_ == State::kContent, at_start = in_content && !is_part_begun_;
  const auto begins = [&](const std::string& mark) { return has_begun(mark, at); };
  const auto opens = [&](const AnswerSpan& span) { return has_begun(span.open, at); };
  const bool may_be_call = in_content && std::ranges::any_of(form_.calls, [&](const CallForm& calls) {
    return (at_start || !calls.only_at_start) && has_begun(first_mark(calls), at);
  });
  const bool may_reason = at_start || (in_content && form_.reasons_anywhere);
  const bool may_be_other =
      (may_reason && std::ranges::any_of(form_.reasoning, opens)) ||
      (at_start && (std::ranges::any_of(form_.content, opens) || std::ranges::any_of(form_.between, begins))) ||
      (span_ && has_begun(span_->close, at)) || std::ranges::any_of(form_.ends, begins);
  if ((!may_be_call && !may_be_other) || !answer::is_distinct(std::string_view(text_).substr(at))) return false;
  answer_.is_complete = false;
  if (!may_be_other) answer_.cut_call.emplace();
  at_ = text_.size();
  begin_part(true);
  return true;
}

// Handles a mark at `at`.
bool AnswerStream::try_open(size_t at, bool& is_undecided) {
  const auto matches = [&](std::string_view mark, size_t& end) {
    const Matched matched = match_marker(mark, text_, at);
    if (matched.match == Match::kPartial && !is_final_) is_undecided = true;
    end = matched.end;
    return matched.match == Match::kYes;
  };
  size_t end = 0;
  const bool at_start = !is_part_begun_;
  const AnswerSpan* opened = nullptr;
  size_t opened_end = 0;
  bool is_reasoning = false;
  const auto consider = [&](const std::vector<AnswerSpan>& spans) {
    for (const AnswerSpan& span : spans)
      if (!span.open.empty() && matches(span.open, end) && end > opened_end) {
        opened = &span;
        opened_end = end;
        is_reasoning = &spans == &form_.reasoning;
      }
  };
  if (at_start || form_.reasons_anywhere) consider(form_.reasoning);
  if (at_start) consider(form_.content);
  for (const CallForm& calls : form_.calls) {
    if (calls.only_at_start && !at_start) continue;
    const std::string_view mark = first_mark(calls);
    size_t begin = at;
    if (mark.empty()) {
      // Llama separates calls by ";".
      if (!answer_.calls.empty() && text_[at] == ';') begin = answer::skip_bounded_space(text_, at + 1);
      const Match match = match_object(calls, text_, begin).match;
      if (match == Match::kPartial && !is_final_) is_undecided = true;
      if (match != Match::kYes) continue;
    } else if (!matches(mark, end) || end < opened_end) {
      continue;
    }
    if (is_undecided) return false;
    call_ = std::make_unique<CallParser>(calls, context_.tools, begin);
    at_ = at;
    state_ = State::kCall;
    return true;
  }
  if (is_undecided) return false;
  if (opened) {
    hold_joint();
    if (is_reasoning) reasoning_.push_back({at, at});
    at_ = opened_end;
    span_ = opened;
    state_ = is_reasoning ? State::kReasoning : State::kContent;
    begin_part(false);
    return true;
  }
  // The end of reasoning begun by the prompt, or not begun at all.
  if ((at_start && answer_.content.empty() && answer_.reasoning.empty()) || form_.reasons_anywhere)
    for (const AnswerSpan& span : form_.reasoning)
      if (matches(span.close, end) && !is_undecided) {
        hold_joint();
        at_ = end;
        begin_part(joint_ && joint_->empty());
        return true;
      }
  if (at_start)
    for (const std::string& mark : form_.between)
      if (matches(mark, end) && !is_undecided) {
        at_ = end;
        begin_part(false);
        return true;
      }
  if (span_ && !span_->close.empty() && matches(span_->close, end) && !is_undecided) {
    at_ = end;
    span_ = nullptr;
    begin_part(false);
    return true;
  }
  return false;
}

bool AnswerStream::step_content() {
  const std::string_view text = text_;
  const size_t first = answer::skip_space(text, at_);
  if (first >= text.size()) {
    at_ = first;
    return false;
  }
  at_ = first;
  if (mark_begins_[static_cast<unsigned char>(text[first])]) {
    bool is_undecided = false;
    if (is_end_of_turn(first, is_undecided)) {
      // The held text before it stays for finish().
      text_.resize(first);
      at_ = first;
      return false;
    }
    if (try_open(first, is_undecided)) return true;
    if (is_undecided) return false;
    if (drop_cut_mark(first)) return true;
  }
  size_t end = first + 1;
  while (end < text.size() && !is_space(text[end]) && !mark_begins_[static_cast<unsigned char>(text[end])])
    ++end;
  emit_content(text.substr(first, end - first));
  return true;
}

void AnswerStream::emit_reasoning(std::string_view text) {
  if (!answer_.reasoning.empty() && !is_part_begun_)
    answer_.reasoning += '\n';  // another part
  else if (is_part_begun_)
    answer_.reasoning.append(text_, space_begin_, at_ - space_begin_);
  answer_.reasoning.append(text);
  is_part_begun_ = true;
  at_ += text.size();
  drop_space();
}

bool AnswerStream::step_reasoning() {
  const std::string_view text = text_;
  const size_t first = answer::skip_space(text, at_);
  at_ = first;
  if (first >= text.size()) return false;
  if (mark_begins_[static_cast<unsigned char>(text[first])]) {
    bool is_undecided = false;
    // Some models repeat the prompt's opening.
    const Matched again = is_part_begun_ ? Matched{} : match_marker(span_->open, text, first);
    if (again.match == Match::kYes) {
      at_ = again.end;
      drop_space();
      return true;
    }
    if (again.match == Match::kPartial && !is_final_) return false;
    const Matched close = match_marker(span_->close, text, first);
    if (close.match == Match::kYes) {
      at_ = close.end;
      reasoning_.back().end = at_;
      span_ = nullptr;
      state_ = State::kContent;
      begin_part(joint_ && joint_->empty());
      return true;
    }
    if (close.match == Match::kPartial && !is_final_) return false;
    if (is_end_of_turn(first, is_undecided)) {
      text_.resize(first);
      return false;
    }
    if (is_undecided || drop_cut_mark(first)) return false;
  }
  size_t end = first + 1;
  while (end < text.size() && !is_space(text[end]) && !mark_begins_[static_cast<unsigned char>(text[end])])
    ++end;
  emit_reasoning(text.substr(first, end - first));
  return true;
}

bool AnswerStream::step_call() {
  const CallParser::Progress progress = call_->advance(text_, is_final_);
  if (progress == CallParser::Progress::kMore) return false;
  if (call_->is_cut()) answer_.is_complete = false;
  answer_.cut_call = std::move(call_->cut_call());
  const bool has_calls = !call_->calls().empty() || answer_.cut_call.has_value();
  for (ToolCall& call : call_->calls()) answer_.calls.push_back(std::move(call));
  const size_t raw_begin = call_->raw_begin(), end = std::max(call_->end(), at_ + 1);
  call_.reset();
  state_ = State::kContent;
  if (has_calls) {
    at_ = raw_begin;
    span_ = nullptr;
    joint_.reset();
    begin_part(!answer_.content.empty());
  }
  if (progress == CallParser::Progress::kFailed && end > at_)
    emit_content(std::string_view(text_).substr(at_, end - at_));
  return true;
}

}  // namespace tessera
