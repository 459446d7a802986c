// Random answers of a grammar of calls, over bytes and control tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/answer/form.h"
#include "text/answer/marker.h"
#include "text/grammar/constraint.h"
#include "text/grammar/grammar.h"
#include "text/json.h"

namespace tessera::test {

// A token a byte, 256 that ends the text, and control tokens.
struct Vocabulary {
  std::vector<std::string> control;
  std::shared_ptr<const grammar::TokenBytes> tokens;

  explicit Vocabulary(std::vector<std::string> texts) : control(std::move(texts)) {
    std::vector<std::string> all;
    for (int byte = 0; byte < 256; ++byte) all.push_back(byte >= 0xFE ? std::string() : std::string(1, static_cast<char>(byte)));
    all.emplace_back();
    for (const std::string& text : control) all.push_back(grammar::TokenBytes::control_bytes(text));
    tokens = std::move(grammar::TokenBytes::create(std::move(all), {256})).value();
  }
  std::string text_of(int32_t token) const {
    return token > 256 ? control[static_cast<size_t>(token) - 257] : std::string(tokens->bytes(token));
  }
};

// The tags of all marks, which are control tokens in most vocabularies.
inline std::vector<std::string> tags_of(const AnswerForm& form) {
  std::vector<std::string> tags;
  for (const std::string& mark : form.markers())
    for (const std::string_view tag : answer::split_tags(mark))
      if (answer::is_tag(tag) && (tag.back() == '>' || tag.back() == ']') && tag.find('\1') == tag.npos &&
          std::ranges::find(tags, tag) == tags.end())
        tags.emplace_back(tag);
  return tags;
}

// Tokens at random among those that are allowed. What is begun of a mark is mostly completed, and after a while the end is
// sought.
class RandomCalls {
 public:
  RandomCalls(grammar::Grammar::Shared of, const AnswerForm& form, std::vector<std::string> control, const Json& tools,
              uint32_t seed)
      : vocabulary_(std::move(control)),
        cache_(std::make_shared<grammar::MaskCache>(std::move(of), vocabulary_.tokens)),
        random_(seed) {
    for (const AnswerSpan& span : form.reasoning) add(span.close);
    for (const CallForm& calls : form.calls) {
      for (const std::string& mark : {calls.section_close, calls.quote}) add(mark);
      for (const CallStep& step : calls.steps) add(step.mark);
      add_parameter(calls.parameter, tools);
    }
    for (const char* bracket : {"\"", "}", "]", ")"}) add(bracket);
  }

  Result<std::string> write() {
    constexpr size_t kMost = 8000;
    const size_t enough = 20 + below(100);
    grammar::Constraint constraint(cache_);
    std::vector<uint32_t> mask(constraint.mask_words());
    std::string text;
    for (size_t step = 0; step < kMost; ++step) {
      TSR_RETURN_IF_ERROR(constraint.write_allowed(mask));
      const int32_t token = choose(mask, text, step >= enough);
      TSR_RETURN_IF_ERROR(constraint.accept(token));
      if (constraint.has_ended()) return text;
      text += vocabulary_.text_of(token);
    }
    return Status(StatusCode::kInternal, "a text without end: " + text);
  }

 private:
  void add(const std::string& mark) {
    if (!mark.empty()) closings_.push_back(mark);
  }
  void add_parameter(const ParameterForm& form, const Json& tools) {
    const size_t place = form.close.find('\1');
    if (place == std::string::npos) return add(form.value_tail + form.close);
    for (const Json& tool : tools) {
      const Json parameters = tool["function"].value("parameters", Json::object());
      const Json properties = parameters.value("properties", Json::object());
      for (const auto& [name, schema] : properties.items())
        add(form.value_tail + std::string(form.close).replace(place, 1, name));
    }
  }
  size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  static bool is_allowed(const std::vector<uint32_t>& mask, int32_t id) {
    return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  }

  // Bytes that may come next of the longest marks that the text ends in the beginning of.
  std::vector<int32_t> begun_marks(const std::vector<uint32_t>& mask, std::string_view text) const {
    std::vector<int32_t> next;
    size_t longest = 1;
    for (const std::string& closing : closings_)
      for (size_t begun = std::min(closing.size() - 1, text.size()); begun >= longest; --begun) {
        const auto byte = static_cast<uint8_t>(closing[begun]);
        if (!text.ends_with(closing.substr(0, begun)) || !is_allowed(mask, byte)) continue;
        if (begun > longest) next.clear();
        next.push_back(byte);
        longest = begun;
        break;
      }
    return next;
  }

  int32_t choose(const std::vector<uint32_t>& mask, std::string_view text, bool is_late) {
    const bool closes = is_late ? below(8) != 0 : below(16) == 0;
    if (closes && is_allowed(mask, 256)) return 256;
    if (closes || below(4) == 0)
      for (int32_t token = 257; token < cache_->tokens().vocabulary_size(); ++token)
        if (is_allowed(mask, token) && below(2) == 0) return token;
    if (const std::vector<int32_t> next = begun_marks(mask, text); !next.empty() && below(16) != 0)
      return next[below(next.size())];
    const size_t first = below(closings_.size());
    for (size_t i = 0; closes && i < closings_.size(); ++i)
      if (const auto byte = static_cast<uint8_t>(closings_[(first + i) % closings_.size()][0]); is_allowed(mask, byte))
        return byte;
    std::vector<int32_t> ids, letters;
    for (int32_t id = 0; id < cache_->tokens().vocabulary_size(); ++id) {
      if (!is_allowed(mask, id)) continue;
      ids.push_back(id);
      if (id >= 0x20 && id < 0x7F) letters.push_back(id);
    }
    if (!letters.empty() && below(8) != 0) ids = letters;
    return ids[below(ids.size())];
  }

  const Vocabulary vocabulary_;
  const std::shared_ptr<grammar::MaskCache> cache_;
  std::mt19937 random_;
  std::vector<std::string> closings_;
};

}  // namespace tessera::test
