#include "engine/serving/texts/answer_start.h"

#include <algorithm>

#include "engine/sampling/chat.h"
#include "text/answer/marker.h"

namespace tessera {

AnswerStart AnswerStart::of(const Chat& chat, std::string_view prompt, bool continues) {
  const AnswerForm& form = chat.answer_form();
  AnswerStart start;
  if (auto markers = chat.marker_tokens(); markers.ok()) start.markers = std::move(*markers);
  const std::string opening = form.opening_of(prompt);
  // Marks around the content follow all reasoning in every answer.
  const auto around = std::ranges::find_if(form.content, [](const AnswerSpan& span) { return !span.open.empty(); });
  if (around != form.content.end() && !continues) {
    const bool is_open = std::ranges::find(form.content, opening, &AnswerSpan::open) != form.content.end();
    if (!is_open) start.until = around->open;
    return start;
  }
  for (const AnswerSpan& span : form.reasoning)
    if (!span.close.empty() && !span.open.empty() && span.open == opening) start.until = span.close;
  if (!start.until.empty() || continues) return start;
  // With reasoning turned off, the template writes an empty closed span.
  const std::string_view shown = answer::without_trailing_space(prompt);
  for (const AnswerSpan& span : form.reasoning) {
    if (span.close.empty() || shown.ends_with(span.close)) return start;
    start.open_token = chat.opening_token(span.open);
    start.close = span.close;
    if (start.open_token >= 0) return start;
  }
  return start;
}

}  // namespace tessera
