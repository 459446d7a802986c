#include "engine/serving/texts/structured_text.h"

#include <algorithm>
#include <utility>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr size_t kMostSpace = 16;  // white space allowed between the mark and the answer, in bytes

bool is_space(char each) { return each == ' ' || each == '\n' || each == '\t' || each == '\r'; }
bool is_blank(std::string_view text) { return std::ranges::all_of(text, is_space); }

void allow(std::span<uint32_t> mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

}  // namespace

StructuredText::StructuredText(GrammarSource source, grammar::Constraint constraint, AnswerStart start)
    : state_(std::make_shared<const Shared>(Shared{std::move(source), std::move(start)})),
      tokens_(constraint.shared_tokens()),
      constraint_(std::move(constraint)) {
  const AnswerStart& given = state_->start;
  if (!given.until.empty()) {
    phase_ = Phase::kFree;
    mark_ = given.until;
    answer_begin_ = SIZE_MAX;
  } else if (given.open_token >= 0 && given.open_token < tokens_->vocabulary_size()) {
    phase_ = Phase::kStart;
    mark_ = given.close;
  }
}

std::string_view StructuredText::text_of(int32_t token) const {
  const auto marker = state_->start.markers.find(token);
  if (marker != state_->start.markers.end()) return marker->second;
  if (token < 0 || token >= tokens_->vocabulary_size()) return {};
  const std::string_view bytes = tokens_->bytes(token);
  return grammar::TokenBytes::is_control(bytes) ? std::string_view() : bytes;
}

bool StructuredText::is_text(int32_t token) const {
  const std::string_view text = text_of(token);
  return phase_ == Phase::kFree && !text.empty() && mark_.find(text) != std::string::npos;
}

Status StructuredText::write_allowed(std::span<uint32_t> mask) const {
  if (phase_ == Phase::kFree) {
    std::ranges::fill(mask, ~uint32_t{0});
    if (const auto rest = static_cast<size_t>(tokens_->vocabulary_size()) % 32; rest > 0)
      mask.back() = (uint32_t{1} << rest) - 1;
    for (const int32_t id : tokens_->end_ids())
      if (!is_text(id)) mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
    return {};
  }
  TSR_RETURN_IF_ERROR(constraint_.write_allowed(mask));
  if (phase_ == Phase::kStart) allow(mask, state_->start.open_token);
  if (phase_ == Phase::kSpace && space_ < kMostSpace)
    for (int32_t id = 0; id < tokens_->vocabulary_size(); ++id)
      if (const std::string_view text = tokens_->bytes(id);
          !text.empty() && space_ + text.size() <= kMostSpace && is_blank(text))
        allow(mask, id);
  return {};
}

size_t StructuredText::bytes_behind_mark(std::string_view text, std::string& tail) const {
  const size_t before = tail.size();
  tail.append(text);
  const size_t found = tail.find(mark_);
  if (found != std::string::npos) {
    const size_t end = found + mark_.size();
    TSR_CHECK(end > before, "the mark was found before");
    return tail.size() - end;
  }
  if (tail.size() >= mark_.size()) tail.erase(0, tail.size() - (mark_.size() - 1));
  return std::string::npos;
}

bool StructuredText::breaks_answer(int32_t token) const {
  if (phase_ != Phase::kFree) return false;
  std::string tail = tail_;
  const std::string_view text = text_of(token);
  const size_t behind = bytes_behind_mark(text, tail);
  if (behind == std::string::npos || behind == 0) return false;
  std::string_view rest = text.substr(text.size() - behind);
  grammar::Constraint trial = constraint_;
  if (trial.accept_text(rest).ok()) return false;
  while (!rest.empty() && is_space(rest[0])) rest.remove_prefix(1);
  if (rest.empty()) return behind > kMostSpace;
  trial = constraint_;
  return !trial.accept_text(rest).ok();
}

void StructuredText::begin_answer(size_t place) {
  phase_ = Phase::kAnswer;
  answer_begin_ = place;
  places_.clear();
}

Status StructuredText::accept(int32_t token, size_t bytes) {
  const size_t begin = std::exchange(size_, size_ + bytes);
  if (phase_ == Phase::kStart) {
    phase_ = Phase::kAnswer;
    if (token == state_->start.open_token) {
      grammar::Constraint trial = constraint_;
      if (!trial.accept(token).ok()) {
        phase_ = Phase::kFree;
        answer_begin_ = SIZE_MAX;
        return {};
      }
    }
  }
  if (phase_ == Phase::kFree) {
    const std::string_view text = text_of(token);
    const size_t behind = bytes_behind_mark(text, tail_);
    if (behind == std::string::npos) return {};
    phase_ = Phase::kSpace;
    std::string_view rest = text.substr(text.size() - behind);
    if (rest.empty()) return {};
    // White space at the grammar's own start belongs to the answer.
    grammar::Constraint trial = constraint_;
    if (!trial.accept_text(rest).ok()) {
      while (!rest.empty() && is_space(rest[0])) {
        rest.remove_prefix(1);
        ++space_;
      }
      if (rest.empty()) return {};
      TSR_RETURN_IF_ERROR(constraint_.accept_text(rest));
    } else {
      constraint_ = std::move(trial);
    }
    begin_answer(size_ - rest.size());
    note(size_, -1);
    return {};
  }
  const Status accepted = constraint_.accept(token);
  if (phase_ == Phase::kSpace) {
    if (!accepted.ok() && is_blank(text_of(token)) && !text_of(token).empty()) {
      space_ += text_of(token).size();
      return {};
    }
    begin_answer(begin);
  }
  TSR_RETURN_IF_ERROR(accepted);
  note(size_, token);
  return {};
}

void StructuredText::restart_places() {
  size_ = 0;
  if (is_in_answer()) answer_begin_ = 0;
  for (Place& place : places_) place.end = 0;
}

bool StructuredText::can_end_at(size_t place) const {
  if (!is_in_answer() || place < answer_begin_) return false;
  // Tokens that end before the place, and a part of the next token.
  const auto next = std::ranges::upper_bound(places_, place, {}, &Place::end);
  const auto count = static_cast<size_t>(next - places_.begin());
  const size_t from = count > 0 ? places_[count - 1].end : answer_begin_;
  std::string_view bytes;
  if (place > from) {
    if (next == places_.end() || next->token < 0) return false;
    bytes = tokens_->bytes(next->token).substr(0, place - from);
  }
  return constraint_.can_end_after(count, bytes);
}

}  // namespace tessera
