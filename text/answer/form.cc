#include "text/answer/form.h"

#include <algorithm>
#include <optional>

#include "graph/base/text.h"
#include "text/answer/call_form.h"
#include "text/answer/form_probe.h"
#include "text/answer/known_forms.h"
#include "text/answer/marker.h"
#include "text/chat_template.h"

namespace tessera {

using answer::FormProbe;
using answer::is_blank;
using answer::is_tag;
using answer::split_tags;

namespace {

std::string_view before(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  return at == std::string_view::npos ? std::string_view() : text.substr(0, at);
}
std::string_view after(std::string_view text, std::string_view word) {
  const size_t at = text.rfind(word);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + word.size());
}

// The name of a tag: "think" of "</think>", "thinking" of "<|END_THINKING|>".
std::string tag_name(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || (lower & 0x80)) name += lower;
  }
  for (const std::string_view word : {"start", "begin", "open", "prefix", "end", "close", "suffix"})
    if (const size_t at = name.find(word); at != std::string::npos && name.size() > word.size())
      name.erase(at, word.size());
  return name;
}

// Finds the matching tags next to the reasoning.
bool read_reasoning(std::string_view text, AnswerSpan& reasoning) {
  const size_t at = text.find(answer::kReasoningWord);
  if (at == std::string_view::npos) return false;
  const auto ahead = split_tags(answer::without_trailing_space(text.substr(0, at)));
  const auto behind = split_tags(trim(text.substr(at + answer::kReasoningWord.size())));
  if (ahead.empty() || behind.empty() || !is_tag(ahead.back()) || !is_tag(behind.front())) return false;
  const std::string name = tag_name(ahead.back());
  if (name.empty() || name != tag_name(behind.front()) || ahead.back() == behind.front()) return false;
  reasoning = {std::string(ahead.back()), std::string(behind.front())};
  return true;
}

// Whether the template takes reasoning out of content, and nothing but it.
bool removes_reasoning(const FormProbe& probe, const AnswerSpan& span) {
  const std::string_view behind = answer::kProbeValues[0];
  const auto shown = probe.render_content(
      format("{} {}\n{}\n{} {}", answer::kContentWord, span.open, answer::kReasoningWord, span.close, behind));
  const auto shows = [&shown](std::string_view word) { return shown->find(word) != std::string::npos; };
  return shown && shows(answer::kContentWord) && shows(behind) && !shows(answer::kReasoningWord);
}

// Marks around content with calls, if a template also writes them around empty
// content, as Llama 4's: <|python_start|>CONTENT<|python_end|>{"name": ...
std::optional<AnswerSpan> read_content_of_calls(const FormProbe& probe) {
  const auto with = probe.render({true, false, 1}), without = probe.render({false, false, 1});
  if (!with || !without) return std::nullopt;
  const size_t at = with->find(answer::kContentWord);
  if (at == std::string::npos || at > with->find(answer::kProbeNames[0])) return std::nullopt;
  const std::string_view shown = *with;
  const auto ahead = split_tags(answer::without_trailing_space(shown.substr(0, at)));
  const auto behind = split_tags(trim(shown.substr(at + answer::kContentWord.size())));
  if (ahead.empty() || behind.empty() || !is_tag(ahead.back()) || !is_tag(behind.front())) return std::nullopt;
  const AnswerSpan span{std::string(ahead.back()), std::string(behind.front())};
  const std::string name = tag_name(span.open);
  const bool is_pair = !name.empty() && name == tag_name(span.close) && span.open != span.close;
  if (!is_pair || answer::find_empty_span(*without, span).empty()) return std::nullopt;
  return span;
}

void erase_all(std::string& text, std::string_view word) {
  if (word.empty()) return;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at))
    text.erase(at, word.size());
}

// Common beginning, up to the end of a tag.
size_t common_tags(std::string_view a, std::string_view b) {
  const auto first = split_tags(a), second = split_tags(b);
  size_t size = 0;
  for (size_t i = 0; i < std::min(first.size(), second.size()) && first[i] == second[i]; ++i)
    size += first[i].size();
  return size;
}

// The text around content: marks, or white space.
void read_content(std::string_view shown, std::string_view prompt, AnswerForm& form) {
  const std::string_view ahead = before(shown, answer::kContentWord);
  const std::string_view behind = after(shown, answer::kContentWord);
  if (shown.find(answer::kContentWord) == std::string_view::npos) return;
  std::string mark(ahead.substr(common_tags(ahead, prompt)));
  if (is_blank(mark)) form.lead = mark;
  for (const AnswerSpan& span : form.reasoning) {
    erase_all(mark, span.open);
    erase_all(mark, span.close);
  }
  const auto ends = split_tags(trim(behind));
  if (is_tag(trim(mark)) && !ends.empty()) {
    form.content.push_back({std::string(trim(mark)), std::string(ends.front())});
    if (ends.size() > 1) form.ends.emplace_back(ends[1]);
  }
  form.tail = behind.substr(0, answer::skip_space(behind, 0));
  if (ends.empty()) return;
  form.ends.emplace_back(ends.front());
  // A mark may be more than a tag, such as "[e~[".
  const std::string_view bare = trim(behind);
  if (!ends.front().ends_with('>') && !ends.front().ends_with(']'))
    form.ends.emplace_back(bare.substr(0, std::ranges::find_if(bare, answer::is_space) - bare.begin()));
}

}  // namespace

AnswerForm AnswerForm::of(const ChatTemplate& chat) {
  AnswerForm form;
  const FormProbe probe(chat);
  if (!answer::find_whole_form(chat.text(), form)) {
    AnswerSpan reasoning;
    const auto thought = probe.render({true, true, 0});
    if ((thought && read_reasoning(*thought, reasoning)) || answer::find_reasoning(chat.text(), reasoning))
      form.reasoning.push_back(reasoning);
    if (const auto shown = probe.render({true, false, 0})) read_content(*shown, probe.prompt(), form);
    const std::optional<AnswerSpan> with_calls = read_content_of_calls(probe);
    if (auto calls = answer::read_call_form(probe, form, with_calls)) form.calls.push_back(std::move(*calls));
    if (with_calls) {
      form.content.push_back(*with_calls);
      form.between.push_back(with_calls->close);  // calls may stand inside
    }
    answer::add_known_calls(chat.text(), form);
    form.reasons_anywhere = !form.reasoning.empty() && form.content.empty() && removes_reasoning(probe, form.reasoning[0]);
  }
  // A non-tag end such as ";" would be cut from content.
  std::erase_if(form.ends, [](const std::string& mark) { return !is_tag(mark); });
  std::ranges::sort(form.ends);
  form.ends.erase(std::unique(form.ends.begin(), form.ends.end()), form.ends.end());
  form.default_opening = form.opening_of(probe.prompt());
  return form;
}

std::string AnswerForm::opening_of(std::string_view prompt) const {
  prompt = answer::without_trailing_space(prompt);
  std::string_view longest;
  const auto consider = [&](std::string_view mark) {
    if (mark.size() > longest.size() && prompt.ends_with(mark)) longest = mark;
  };
  for (const AnswerSpan& span : reasoning) consider(span.open);
  for (const AnswerSpan& span : content) consider(span.open);
  for (const std::string& mark : between) consider(mark);
  for (const CallForm& form : calls)
    if (form.section_open.empty() && form.steps[0].kind == CallStep::Kind::kMark)
      consider(form.steps[0].mark);
  return std::string(longest);
}

std::vector<std::string> AnswerForm::markers() const {
  std::vector<std::string> all;
  const auto add = [&all](const std::string& mark) {
    if (!mark.empty() && std::ranges::find(all, mark) == all.end()) all.push_back(mark);
  };
  for (const auto* spans : {&reasoning, &content})
    for (const AnswerSpan& span : *spans) {
      add(span.open);
      add(span.close);
    }
  for (const std::string& mark : between) add(mark);
  for (const CallForm& form : calls) {
    add(form.section_open);
    for (const CallStep& step : form.steps) add(step.mark);
    for (const std::string& mark : {form.parameter.open, form.parameter.middle, form.parameter.kind_end,
                                    form.parameter.close, form.quote, form.section_close})
      add(mark);
  }
  for (const std::string& mark : ends) add(mark);
  return all;
}

}  // namespace tessera
