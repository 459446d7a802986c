#include "engine/serving/texts/request_builder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/base/runtime.h"
#include "engine/base/text_ids.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr size_t kMostGrammars = 64, kMostChats = 8;

Status needs_tokenizer(std::string_view what) {
  return Status(
      StatusCode::kFailedPrecondition,
      format("{} needs a tokenizer, which the model lacks: give it one with tsr_model_set_tokenizer", what));
}

Result<std::vector<std::string>> read_choices(const std::string& text) {
  const Result<Json> list = parse_json(text, "request: option 'choices'");
  if (!list.ok() || !list->is_array())
    return Status(StatusCode::kInvalidArgument,
                  format("request: option 'choices' is {}, wanted a JSON array of texts", quote(text)));
  std::vector<std::string> choices;
  for (const Json& item : *list) {
    if (!item.is_string())
      return Status(StatusCode::kInvalidArgument,
                    format("request: option 'choices' holds {}, wanted texts", quote_json(item)));
    choices.push_back(item.get<std::string>());
  }
  return choices;
}

Result<grammar::Grammar::Shared> compile(const GrammarSource& source) {
  using Kind = GrammarSource::Kind;
  switch (source.kind) {
    case Kind::kJsonSchema: return grammar::Grammar::from_json_schema(source.text);
    case Kind::kJson: return grammar::Grammar::json();
    case Kind::kRegex: return grammar::Grammar::from_regex(source.text);
    case Kind::kGbnf: return grammar::Grammar::from_gbnf(source.text);
    case Kind::kChoices: {
      TSR_ASSIGN_OR_RETURN(const std::vector<std::string> choices, read_choices(source.text));
      return grammar::Grammar::from_choices(choices);
    }
    case Kind::kCalls:
    case Kind::kNone: break;
  }
  return Status(StatusCode::kInternal, "a grammar without a source");
}

// null without option.
Result<Json> read_tools(const Options& chat) {
  const auto given = chat.find("tools");
  const auto* const text = given == chat.end() ? nullptr : std::get_if<std::string>(&given->second);
  if (text == nullptr || text->empty()) return Json();
  Result<Json> tools = parse_json(*text, "option 'tools'");
  if (!tools.ok()) return Status(StatusCode::kInvalidArgument, std::string(tools.status().message()));
  return tools;
}

// `tools`: null if what looks like a call is content.
Result<std::shared_ptr<AnswerReading>> reading_of(std::shared_ptr<const Chat> chat, std::string_view prompt,
                                                  const Json* tools) {
  auto reading = std::make_shared<AnswerReading>();
  TSR_ASSIGN_OR_RETURN(reading->markers, chat->marker_tokens());
  reading->context.opening = chat->answer_form().opening_of(prompt);
  if (tools != nullptr) {
    reading->context.tools = *tools;
  } else {
    reading->own_form = chat->answer_form();
    reading->own_form->calls.clear();
  }
  reading->chat = std::move(chat);
  return reading;
}

// All that the grammar of calls depends on, of one tokenizer.
GrammarSource calls_source(const CallGrammar& calls, const Options& chat_template) {
  Json text = {{"tools", calls.tools}, {"name", calls.name}, {"opening", calls.opening}, {"may_reason", calls.may_reason}};
  for (const auto& [key, value] : chat_template)
    if (const auto* given = std::get_if<std::string>(&value)) text[key == "name" ? "template_name" : key] = *given;
  return {GrammarSource::Kind::kCalls, dump(text)};
}

// The value of the key, moved to the front; null if absent.
template <class List, class Key>
auto find_kept(List& list, const Key& key) -> decltype(&list.front().second) {
  const auto found = std::ranges::find(
      list, key, [](const auto& item) -> const auto& { return item.first; });
  if (found == list.end()) return nullptr;
  list.splice(list.begin(), list, found);
  return &list.front().second;
}

}  // namespace

RequestBuilder::RequestBuilder(std::shared_ptr<SharedModel> model, SamplingSettings defaults)
    : model_(std::move(model)),
      tokenizer_(model_->tokenizer()),
      defaults_(std::move(defaults)),
      form_(embedding_form(*model_, false)) {}

Result<grammar::Constraint> RequestBuilder::constraint(const GrammarSource& source,
                                                       const Compile& compile_calls) {
  if (!tokenizer_) return needs_tokenizer("a grammar");
  {
    const std::lock_guard lock(mutex_);
    if (const auto* kept = find_kept(grammars_, source)) return grammar::Constraint(*kept);
    if (!token_bytes_) {
      TSR_ASSIGN_OR_RETURN(token_bytes_, grammar::TokenBytes::create(*tokenizer_));
    }
  }
  // Compiles without the lock, so that other requests do not wait.
  const bool is_of_calls = source.kind == GrammarSource::Kind::kCalls;
  TSR_ASSIGN_OR_RETURN(auto compiled, is_of_calls ? compile_calls() : compile(source));
  auto cache = std::make_shared<grammar::MaskCache>(std::move(compiled), token_bytes_);
  const std::lock_guard lock(mutex_);
  grammars_.emplace_front(source, cache);
  if (grammars_.size() > kMostGrammars) grammars_.pop_back();
  return grammar::Constraint(std::move(cache));
}

Result<std::shared_ptr<const Chat>> RequestBuilder::chat(const Options& options) {
  const std::lock_guard lock(mutex_);
  if (const auto* kept = find_kept(chats_, options)) return *kept;
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const Chat> made, Chat::create(*model_, options));
  chats_.emplace_front(options, made);
  if (chats_.size() > kMostChats) chats_.pop_back();
  return made;
}

Result<ServingRequest> RequestBuilder::make(std::vector<int32_t> prompt, RequestSettings settings, AnswerStart start,
                                            const Compile& compile_calls) {
  if (!settings.sampling.stop.empty() && !tokenizer_) return needs_tokenizer("option 'stop'");
  ServingRequest request;
  request.prompt = std::move(prompt);
  request.seed =
      static_cast<uint64_t>(settings.sampling.seed ? *settings.sampling.seed : Runtime::draw_seed());
  request.priority = static_cast<int32_t>(settings.priority);
  if (!settings.sampling.stop.empty())
    request.stops = std::make_shared<const StopAutomaton>(settings.sampling.stop);
  if (settings.grammar.kind != GrammarSource::Kind::kNone) {
    TSR_ASSIGN_OR_RETURN(grammar::Constraint limited, constraint(settings.grammar, compile_calls));
    request.structured.emplace(settings.grammar, std::move(limited), std::move(start));
  }
  request.task = settings.task;
  if (request.task && request.task->kind == PromptTask::Kind::kVector) {
    request.task->form = {settings.pooling.value_or(form_.pooling),
                          settings.normalize.value_or(form_.normalize)};
    if (request.task->form.pooling == Pooling::kNone && !settings.normalize) {
      request.task->kind = PromptTask::Kind::kHidden;  // as with option pooling = none
    } else {
      TSR_RETURN_IF_ERROR(check_pools(request.task->form.pooling));
    }
  }
  request.adapter = settings.adapter;
  request.changes_logits = settings.changes_logits;
  request.keeps_sequence = settings.keeps_sequence;
  request.sampling = std::make_shared<const SamplingSettings>(std::move(settings.sampling));
  return request;
}

Result<ServingRequest> RequestBuilder::from_tokens(std::vector<int32_t> prompt, const Options& options) {
  TSR_ASSIGN_OR_RETURN(RequestSettings settings, read_request_settings(options, defaults_, false));
  return make(std::move(prompt), std::move(settings));
}

Result<ServingRequest> RequestBuilder::from_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                                 const Options& options) {
  std::vector<int32_t> prompt = sequence.tokens;
  prompt.insert(prompt.end(), more.begin(), more.end());
  TSR_ASSIGN_OR_RETURN(RequestSettings settings, read_request_settings(options, defaults_, false));
  const KeptText* const text = sequence.text.get();
  const bool goes_on = text != nullptr && more.empty() && text->begin <= sequence.tokens.size() &&
                       text->end != sequence.tokens.size() && settings.grammar == text->source;
  TSR_ASSIGN_OR_RETURN(
      ServingRequest request,
      make(std::move(prompt), std::move(settings), goes_on ? text->start : AnswerStart()));
  if (!goes_on) return request;
  for (const int32_t token : std::span(sequence.tokens).subspan(text->begin))
    TSR_RETURN_IF_ERROR(
        request.structured->accept(token, 0).with_context("the text that the sequence ends in"));
  request.structured->restart_places();
  request.text_begin = static_cast<int64_t>(text->begin);
  return request;
}

Result<ServingRequest> RequestBuilder::from_text(std::string_view prompt, const Options& options) {
  TSR_ASSIGN_OR_RETURN(RequestSettings settings, read_request_settings(options, defaults_, false));
  if (!tokenizer_) return needs_tokenizer("a prompt that is text");
  if (settings.task && settings.task->reads_hidden()) {
    TSR_ASSIGN_OR_RETURN(TextIds read, text_ids(*tokenizer_, prompt, std::nullopt, INT32_MAX));
    return make(std::move(read.ids), std::move(settings));
  }
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                       tokenizer_->encode(prompt, {.parse_special = settings.sampling.special}));
  ids = tokenizer_->with_before_text(std::move(ids));
  if (ids.empty() && prompt.empty() && tokenizer_->data().bos >= 0) ids.push_back(tokenizer_->data().bos);
  if (ids.empty())
    return Status(StatusCode::kInvalidArgument,
                  "the prompt is empty and the tokenizer has no beginning-of-sequence token to start from");
  return make(std::move(ids), std::move(settings));
}

Result<ServingRequest> RequestBuilder::from_messages(std::string_view messages, const Options& options) {
  TSR_ASSIGN_OR_RETURN(RequestSettings settings, read_request_settings(options, defaults_, true));
  if (!tokenizer_) return needs_tokenizer("a conversation");
  TSR_ASSIGN_OR_RETURN(const auto with, chat(settings.chat_template));
  TSR_ASSIGN_OR_RETURN(Json tools, read_tools(settings.chat));
  TSR_RETURN_IF_ERROR(settings.tool_choice.check(tools));
  const bool hides_tools = settings.tool_choice.kind == ToolChoice::Kind::kNone;
  if (hides_tools) settings.chat.erase("tools");
  TSR_ASSIGN_OR_RETURN(ChatTokens tokens, with->encode(messages, settings.chat, false));
  std::shared_ptr<AnswerReading> answer;
  if (settings.parses) {
    TSR_ASSIGN_OR_RETURN(answer, reading_of(with, tokens.text, hides_tools ? nullptr : &tools));
  }
  const auto continued = settings.chat.find("continue_final_message");
  const auto* const flag =
      continued == settings.chat.end() ? nullptr : std::get_if<int64_t>(&continued->second);
  const bool continues = flag != nullptr && *flag != 0;
  AnswerStart start;
  if (settings.grammar.kind != GrammarSource::Kind::kNone)
    start = AnswerStart::of(*with, tokens.text, continues);
  CallGrammar calls;
  if (settings.tool_choice.obliges()) {
    calls = obliged_calls(settings.tool_choice, std::move(tools), *with, *tokenizer_, tokens.text, continues);
    settings.grammar = calls_source(calls, settings.chat_template);
  }
  TSR_ASSIGN_OR_RETURN(ServingRequest request,
                       make(std::move(tokens.ids), std::move(settings), std::move(start),
                            [&] { return make_call_grammar(with->answer_form(), calls); }));
  request.answer = std::move(answer);
  return request;
}

}  // namespace tessera
