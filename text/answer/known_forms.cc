#include "text/answer/known_forms.h"

namespace tessera::answer {
namespace {

using Kind = CallStep::Kind;

// JSON between marks, such as <tool_call>{...}</tool_call>.
CallForm objects_between(std::string open, std::string close, bool is_list) {
  CallForm calls;
  calls.is_list = is_list;
  calls.steps = {{Kind::kMark, std::move(open)}, {Kind::kObjects, ""}};
  if (!close.empty()) calls.steps.push_back({Kind::kMark, std::move(close)});
  return calls;
}

// https://cookbook.openai.com/articles/openai-harmony: messages have a channel and an optional recipient, in any order.
AnswerForm harmony() {
  AnswerForm form;
  form.reasoning = {{"<|channel|>analysis<|message|>", "<|end|>"}};
  form.content = {{"<|channel|>final<|message|>", "<|end|>"},
                  {"<|channel|>commentary<|message|>", "<|end|>"}};
  form.between = {"<|start|>assistant", "<|call|>"};
  for (const std::string recipient :
       {"to=functions.", "<|channel|>commentary to=functions.", "<|channel|>analysis to=functions."}) {
    CallForm calls;
    calls.only_at_start = true;
    calls.steps = {{Kind::kMark, recipient},     {Kind::kName, ""},      {Kind::kSkip, ""},
                   {Kind::kMark, "<|message|>"}, {Kind::kArguments, ""}, {Kind::kMark, "<|call|>"}};
    const std::string channel = recipient.starts_with("to=") ? "<|channel|>commentary" : "";
    calls.steps[2].fillers = {channel + " json", channel + " <|constrain|>json"};
    form.calls.push_back(std::move(calls));
  }
  form.ends = {"<|return|>", "<|end|>", "<|call|>"};
  return form;
}

AnswerForm muse() {
  AnswerForm form;
  form.reasoning = {{"to=self<|message|>", "<|eom|>"}};
  form.content = {{"to=user<|message|>", "<|eom|>"}};
  form.between = {"<|start|>assistant", "<|eom|>"};
  CallForm calls;
  calls.only_at_start = true;
  calls.steps = {{Kind::kMark, "to="},
                 {Kind::kSkip, "", false, false, {"\1"}},
                 {Kind::kMark, "<|message|><atem:function_calls>\n<atem:invoke name=\""},
                 {Kind::kName, ""},
                 {Kind::kMark, "\">"},
                 {Kind::kParameters, ""},
                 {Kind::kMark, "</atem:invoke>\n</atem:function_calls>"}};
  calls.parameter.open = "<atem:parameter name=\"";
  calls.parameter.middle = "\">";
  calls.parameter.close = "</atem:parameter>";
  form.calls = {std::move(calls)};
  form.ends = {"<|eot|>", "<|eom|>"};
  return form;
}

AnswerForm kimi_k3() {
  AnswerForm form;
  form.reasoning = {{"<|open|>think<|sep|>", "<|close|>think<|sep|>"}};
  form.content = {{"<|open|>response<|sep|>", "<|close|>response<|sep|>"}};
  CallForm calls;
  calls.section_open = "<|open|>tools<|sep|>";
  calls.section_close = "<|close|>tools<|sep|>";
  calls.steps = {{Kind::kMark, "<|open|>call tool=\""},
                 {Kind::kName, ""},
                 {Kind::kMark, "\" index=\""},
                 {Kind::kSkip, "", false, false, {"1\""}},
                 {Kind::kMark, "<|sep|>"},
                 {Kind::kParameters, ""},
                 {Kind::kMark, "<|close|>call<|sep|>"}};
  calls.parameter.open = "<|open|>argument key=\"";
  calls.parameter.middle = "\" type=\"";
  calls.parameter.has_kind = true;
  calls.parameter.kind_end = "\"<|sep|>";
  calls.parameter.text_kind = "string";
  calls.parameter.close = "<|close|>argument<|sep|>";
  form.calls = {std::move(calls)};
  form.ends = {"<|close|>message<|sep|><|end_of_msg|>", "<|close|>message<|sep|>", "<|end_of_msg|>"};
  return form;
}

AnswerForm solar() {
  AnswerForm form;
  form.reasoning = {{"<|think|>", "<|end|>"}};
  form.content = {{"<|content|>", "<|end|>"}};
  form.between = {"<|begin|>assistant"};
  CallForm calls;
  calls.section_open = "<|tool_calls|>";
  calls.section_close = "<|calls|>";
  calls.steps = {{Kind::kMark, "<|tool_call:begin|>"}, {Kind::kId, ""},
                 {Kind::kMark, "<|tool_call:name|>"},  {Kind::kName, ""},
                 {Kind::kMark, "<|tool_call:args|>"},  {Kind::kArguments, ""},
                 {Kind::kMark, "<|tool_call:end|>"}};
  form.calls = {std::move(calls)};
  form.ends = {"<|end|>", "<|calls|>"};
  return form;
}

// Functionary 3.2: ">>>" and a recipient, "all" for content.
AnswerForm functionary() {
  AnswerForm form;
  form.content = {{">>>all", ""}};
  CallForm calls;
  calls.steps = {{Kind::kMark, ">>>"}, {Kind::kName, ""}, {Kind::kArguments, ""}};
  form.calls = {std::move(calls)};
  form.ends = {"<|eot_id|>"};
  return form;
}

struct WholeForm {
  std::string_view word, other;
  AnswerForm (*make)();
};
constexpr WholeForm kWholeForms[] = {
    {"<|channel|>analysis<|message|>", "<|start|>", harmony},
    {"<atem:invoke", "to=self", muse},
    {"<|open|>", "<|end_of_msg|>", kimi_k3},
    {"<|tool_call:args|>", "<|content|>", solar},
    {">>>all", "<|start_header_id|>", functionary},
};

struct Reasoning {
  std::string_view open, close;
};
constexpr Reasoning kReasoning[] = {
    {"<seed:think>", "</seed:think>"},
    {"<mm:think>", "</mm:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<think>", "</think>"},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
};

struct KnownCalls {
  std::string_view word, open, close;
  bool is_list = true;
};
// Marks around JSON.
constexpr KnownCalls kObjects[] = {
    {"<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"},
    {"<|/tool_call|>", "<|tool_call|>", "<|/tool_call|>"},  // Phi-4-mini
    {"<|tool|>", "<|tool_call|>", "<|/tool_call|>"},
    {"[TOOL_CALLS]", "[TOOL_CALLS]", ""},
    {"<|tool_call|>", "<|tool_call|>", ""},  // Granite 3
    {"available_tools", "<|tool_call|>", ""},
    {"<tool_call>", "<tool_call>", "</tool_call>", false},
};

bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

CallForm python_between(std::string open, std::string close, bool is_list) {
  CallForm calls;
  calls.is_list = is_list;
  calls.steps = {{Kind::kMark, std::move(open)}, {Kind::kPython, ""}};
  if (!close.empty()) calls.steps.push_back({Kind::kMark, std::move(close)});
  return calls;
}

}  // namespace

bool find_whole_form(std::string_view text, AnswerForm& form) {
  for (const WholeForm& known : kWholeForms)
    if (contains(text, known.word) && contains(text, known.other)) {
      form = known.make();
      return true;
    }
  return false;
}

bool find_reasoning(std::string_view text, AnswerSpan& reasoning) {
  for (const Reasoning& known : kReasoning)
    if (contains(text, known.close)) {
      reasoning = {std::string(known.open), std::string(known.close)};
      return true;
    }
  return false;
}

void add_known_calls(std::string_view text, AnswerForm& form) {
  // Llama 3: built-in tools after a mark, as name.call(key="value"), and occasionally others.
  if (contains(text, "<|python_tag|>")) form.calls.push_back(python_between("<|python_tag|>", "", false));
  if (!form.calls.empty()) return;
  if (contains(text, "List of tools: [") || contains(text, "<|tool_list_start|>") ||
      contains(text, "<|tool_call_start|>")) {
    form.calls.push_back(python_between("<|tool_call_start|>", "<|tool_call_end|>", true));
    return;
  }
  if (contains(text, "<|tool_calls_section_begin|>")) {  // Kimi K2
    CallForm calls;
    calls.section_open = "<|tool_calls_section_begin|>";
    calls.section_close = "<|tool_calls_section_end|>";
    calls.steps = {{Kind::kMark, "<|tool_call_begin|>functions."},
                   {Kind::kName, ""},
                   {Kind::kMark, ":"},
                   {Kind::kSkip, "", false, false, {"0"}},
                   {Kind::kMark, "<|tool_call_argument_begin|>"},
                   {Kind::kArguments, ""},
                   {Kind::kMark, "<|tool_call_end|>"}};
    form.calls.push_back(std::move(calls));
    return;
  }
  if (contains(text, "<｜tool▁calls▁begin｜>")) {
    CallForm calls;
    calls.section_open = "<｜tool▁calls▁begin｜>";
    calls.section_close = "<｜tool▁calls▁end｜>";
    calls.steps = {{Kind::kMark, "<｜tool▁call▁begin｜>"},
                   {Kind::kName, ""},
                   {Kind::kMark, "<｜tool▁sep｜>"},
                   {Kind::kArguments, ""},
                   {Kind::kMark, "<｜tool▁call▁end｜>"}};
    form.calls.push_back(std::move(calls));
    return;
  }
  for (const KnownCalls& known : kObjects)
    if (contains(text, known.word)) {
      form.calls.push_back(objects_between(std::string(known.open), std::string(known.close), known.is_list));
      return;
    }
}

}  // namespace tessera::answer
