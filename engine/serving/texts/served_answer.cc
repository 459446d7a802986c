#include "engine/serving/texts/served_answer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

ServedAnswer::ServedAnswer(std::shared_ptr<const AnswerReading> reading, uint64_t seed)
    : reading_(std::move(reading)), seed_(seed), stream_(reading_->form(), reading_->context) {}

const std::string* ServedAnswer::marker(int32_t token) const {
  const auto found = reading_->markers.find(token);
  return found == reading_->markers.end() ? nullptr : &found->second;
}

AnswerDelta ServedAnswer::add(std::string_view text) {
  text_bytes_ += text.size();
  AnswerDelta delta = stream_.add(text);
  content_ += delta.content.size();
  reasoning_ += delta.reasoning.size();
  return delta;
}

AnswerDelta ServedAnswer::add_start(std::string_view text) {
  is_limited_ = true;
  AnswerDelta delta = add(text);
  delta.reasoning += std::exchange(delta.content, {});
  start_ += delta.reasoning;
  return delta;
}

AnswerDelta ServedAnswer::add_content(std::string_view text) {
  is_limited_ = true;
  limited_ += text;
  text_bytes_ += text.size();
  return {{}, std::string(text)};
}

AnswerDelta ServedAnswer::finish() {
  answer_ = stream_.finish();
  AnswerDelta rest = {answer_.reasoning.substr(std::min(reasoning_, answer_.reasoning.size())),
                      answer_.content.substr(std::min(content_, answer_.content.size()))};
  if (!is_limited_) return rest;
  // White space after the reasoning belongs to the template.
  if (!trim(rest.content).empty()) rest.reasoning += rest.content;
  rest.content.clear();
  answer_.reasoning = start_ + rest.reasoning;
  answer_.content = limited_;
  return rest;
}

int64_t ServedAnswer::reasoning_tokens() const {
  const std::vector<ReasoningRange> ranges = stream_.reasoning_ranges();
  auto range = ranges.begin();
  int64_t count = 0;
  for (size_t i = 0; i < token_begins_.size(); ++i) {
    const size_t begin = token_begins_[i], next = i + 1 < token_begins_.size() ? token_begins_[i + 1] : text_bytes_;
    while (range != ranges.end() && range->end <= begin) ++range;
    // A token without text, as within a character, belongs to the text that follows.
    if (range != ranges.end() && std::max(next, begin + 1) > range->begin) ++count;
  }
  return count;
}

std::string ServedAnswer::message() const { return dump(message_json(answer_, seed_)); }

}  // namespace tessera
