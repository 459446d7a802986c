// Rows of messages are rendered by the chat template, whose generated turns are the trained tokens; other rows are encoded
// as prompt and completion, or as one text.
#include "serialize/training_data/example.h"

#include <algorithm>
#include <array>
#include <utility>

#include "graph/base/text.h"
#include "text/assistant_tokens.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kExampleRoles> kRoleNames = {"plain",  "chosen",   "rejected",
                                                                    "wanted", "unwanted", "prompt"};

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

std::string_view name_of(TrainedPart part) {
  constexpr std::string_view kNames[] = {"default", "assistant", "completion", "all"};
  return kNames[static_cast<size_t>(part)];
}

// The trained part of a row of this kind. kInvalidArgument if it lacks that part.
Result<TrainedPart> part_of(const TrainingRow& row, TrainedPart asked) {
  using enum TrainedPart;
  const auto choose = [&](TrainedPart otherwise,
                          std::initializer_list<TrainedPart> possible) -> Result<TrainedPart> {
    if (asked == kDefault) return otherwise;
    if (std::ranges::find(possible, asked) != possible.end()) return asked;
    std::vector<std::string> names;
    for (const TrainedPart part : possible) names.emplace_back(name_of(part));
    return fail(format("option 'mask' is {}, and the row is of kind {}{}: wanted {}", name_of(asked),
                       name_of(row.kind), row.is_chat ? "" : " without messages", join(names, " or ")));
  };
  switch (row.kind) {
    case RowKind::kText: return choose(kAll, {kAll});
    case RowKind::kMessages: return choose(kAssistant, {kAssistant, kAll});
    case RowKind::kPromptCompletion:
      return row.is_chat ? choose(kCompletion, {kCompletion, kAssistant, kAll})
                         : choose(kCompletion, {kCompletion, kAll});
    default: return choose(kCompletion, {kCompletion});
  }
}

uint32_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Different answers may have equal tokens, also after truncation.
bool is_same_pair(const std::vector<TokenExample>& examples) {
  return examples.size() == 2 && examples[0].ids == examples[1].ids;
}

void train_after(TokenExample& example, uint32_t prompt) {
  example.prompt = prompt;
  example.trained.assign(example.ids.size(), 1);
  std::fill_n(example.trained.begin(), prompt, uint8_t{0});
}

// Concatenates two lists of messages.
Json joined(const Json& first, const Json& second) {
  Json all = first.is_array() ? first : Json::array();
  for (const Json& message : second) all.push_back(message);
  return all;
}

}  // namespace

std::string_view name_of(ExampleRole role) { return kRoleNames[static_cast<size_t>(role)]; }

int64_t TokenExample::trained_tokens() const {
  return trained.empty() ? 0 : std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

Result<ExampleMaker> ExampleMaker::create(std::shared_ptr<const Tokenizer> tokenizer,
                                          std::string_view chat_template, const ExampleOptions& options) {
  ExampleMaker maker;
  if (!chat_template.empty()) {
    TSR_ASSIGN_OR_RETURN(maker.template_,
                         ChatTemplate::create(chat_template, special_texts(tokenizer->data())));
  }
  maker.control_ = std::make_shared<const WrittenControlTokens>(tokenizer->data());
  maker.tokenizer_ = std::move(tokenizer);
  maker.options_ = options;
  return maker;
}

Result<RenderedChat> ExampleMaker::render(const TrainingRow& row, Json messages, bool add_generation_prompt,
                                          bool with_spans) const {
  if (template_ == nullptr)
    return fail(
        "the row has messages, and there is no chat template: give the model's or another one as option "
        "'template'");
  ChatRequest request;
  request.messages = std::move(messages);
  request.tools = row.tools;
  request.documents = row.documents;
  if (!row.variables.is_null()) request.variables = row.variables;
  request.add_generation_prompt = add_generation_prompt;
  request.now_s = options_.now_s;
  const auto rendered = [&] {
    return with_spans ? template_->render_with_spans(request) : template_->render(request);
  };
  Result<RenderedChat> chat = rendered();
  if (chat.ok() || !row.has_text_arguments) return chat;
  request.messages = with_text_arguments(request.messages);
  Result<RenderedChat> with_text = rendered();
  return with_text.ok() ? std::move(with_text) : std::move(chat);
}

Result<Encoding> ExampleMaker::encode_chat(const RenderedChat& chat) {
  return tokenizer_->encode_with_begins(chat.text, {true, chat.data, &words_});
}

// `is_whole`: nothing follows the text.
Result<std::vector<int32_t>> ExampleMaker::encode_text(std::string_view text, bool is_whole) {
  TSR_ASSIGN_OR_RETURN(
      std::vector<int32_t> ids,
      tokenizer_->encode(text, {.parse_special = options_.special, .literal = {}, .words = &words_}));
  if (!options_.special)
    for (const auto& [name, count] : control_->count(text)) written_control_[name] += count;
  ids = tokenizer_->with_before_text(std::move(ids));
  if (!is_whole || !options_.append_end) return ids;
  const std::span<const int32_t> after = tokenizer_->after_text();
  const int32_t end = tokenizer_->data().eos;
  if (!after.empty() && after.back() == end && !ids.empty() && ids.back() == end) return ids;
  ids.insert(ids.end(), after.begin(), after.end());
  if (end >= 0 && (ids.empty() || ids.back() != end)) ids.push_back(end);
  return ids;
}

Result<std::vector<int32_t>> ExampleMaker::encode_prompt(const TrainingRow& row) {
  if (!row.is_chat) return encode_text(row.prompt.get_ref<const std::string&>(), false);
  TSR_ASSIGN_OR_RETURN(const RenderedChat chat, render(row, row.prompt, true, false));
  TSR_ASSIGN_OR_RETURN(Encoding encoding, encode_chat(chat));
  return std::move(encoding.ids);
}

Result<TokenExample> ExampleMaker::encode_completed(const TrainingRow& row, const Json& completion,
                                                    TrainedPart part) {
  TokenExample example;
  if (!row.is_chat) {
    const std::string text = row.prompt.get<std::string>() + completion.get<std::string>();
    TSR_ASSIGN_OR_RETURN(example.ids, encode_text(text, true));
    return example;
  }
  const bool by_turn = part == TrainedPart::kAssistant;
  TSR_ASSIGN_OR_RETURN(const RenderedChat chat, render(row, joined(row.prompt, completion), false, by_turn));
  TSR_ASSIGN_OR_RETURN(Encoding encoding, encode_chat(chat));
  if (by_turn) mark_turns(example, row, chat, encoding);
  example.ids = std::move(encoding.ids);
  return example;
}

// Marks trained tokens, with their weights.
void ExampleMaker::mark_turns(TokenExample& example, const TrainingRow& row, const RenderedChat& chat,
                              const Encoding& encoding) const {
  std::vector<TextRange> learnt;
  std::vector<std::pair<TextRange, float>> weighted;
  for (const RenderedChat::Turn& turn : chat.turns) {
    const auto given = std::ranges::find(row.weights, turn.message, &TrainingRow::MessageWeight::message);
    if (given != row.weights.end() && given->weight == 0) continue;
    learnt.push_back(turn.range);
    if (given != row.weights.end()) weighted.emplace_back(turn.range, given->weight);
  }
  example.trained = mark_assistant_tokens(encoding, chat.text.size(), learnt, *tokenizer_);
  if (weighted.empty()) return;
  example.weights.assign(encoding.ids.size(), 1);
  for (const auto& [range, weight] : weighted) {
    const auto marks = mark_assistant_tokens(encoding, chat.text.size(), {&range, 1}, *tokenizer_);
    for (size_t i = 0; i < marks.size(); ++i)
      if (marks[i] != 0) example.weights[i] = weight;
  }
}

Result<TokenExample> ExampleMaker::make_text(const TrainingRow& row) {
  TokenExample example;
  TSR_ASSIGN_OR_RETURN(example.ids, encode_text(row.completion.get_ref<const std::string&>(), true));
  train_after(example, 0);
  return example;
}

Result<TokenExample> ExampleMaker::make_messages(const TrainingRow& row, TrainedPart part) {
  if (part == TrainedPart::kAll && !row.weights.empty())
    return fail(
        format("message {} has weight {}, and option 'mask' is all: wanted mask assistant, or no weights",
               row.weights[0].message, double{row.weights[0].weight}));
  TSR_ASSIGN_OR_RETURN(TokenExample example, encode_completed(row, row.completion, part));
  if (part == TrainedPart::kAll) example.trained.assign(example.ids.size(), 1);
  return example;
}

Result<std::vector<TokenExample>> ExampleMaker::make_whole(const TrainingRow& row) {
  std::vector<TokenExample> made;
  TSR_ASSIGN_OR_RETURN(const TrainedPart part, part_of(row, options_.part));
  if (row.kind == RowKind::kText || row.kind == RowKind::kMessages) {
    TSR_ASSIGN_OR_RETURN(TokenExample example,
                         row.kind == RowKind::kText ? make_text(row) : make_messages(row, part));
    made.push_back(std::move(example));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, encode_prompt(row));
  if (row.kind == RowKind::kPrompt) {
    TokenExample example;
    example.prompt = static_cast<uint32_t>(prompt.size());
    example.trained.assign(prompt.size(), 0);
    example.ids = std::move(prompt);
    example.role = ExampleRole::kPrompt;
    made.push_back(std::move(example));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(TokenExample first, encode_completed(row, row.completion, part));
  uint32_t begin = common_prefix(prompt, first.ids);
  if (row.kind == RowKind::kPreference) {
    TSR_ASSIGN_OR_RETURN(TokenExample second, encode_completed(row, row.rejected, part));
    begin = std::min(begin, common_prefix(prompt, second.ids));
    train_after(first, begin), train_after(second, begin);
    first.role = ExampleRole::kChosen, second.role = ExampleRole::kRejected;
    made.push_back(std::move(first)), made.push_back(std::move(second));
    return made;
  }
  const std::vector<uint8_t> spoken = std::move(first.trained);
  train_after(first, begin);
  if (part == TrainedPart::kAll) first.trained.assign(first.ids.size(), 1);
  for (size_t i = 0; i < spoken.size(); ++i) first.trained[i] &= spoken[i];
  if (row.kind == RowKind::kUnpaired) first.role = row.label ? ExampleRole::kWanted : ExampleRole::kUnwanted;
  made.push_back(std::move(first));
  return made;
}

// Truncates long examples and drops those without trained tokens; a pair is one unit.
void ExampleMaker::limit(RowExamples& made, Status& refused) const {
  const auto drop = [&](RowExamples::Dropped why, std::string reason) {
    made.examples.clear(), made.dropped = why, made.reason = std::move(reason), made.truncated = 0;
  };
  const auto most = static_cast<size_t>(options_.max_length);
  for (TokenExample& example : made.examples) {
    if (most > 0 && example.ids.size() > most && options_.truncation != Truncation::kSplit) {
      const std::string found =
          format("it has {} tokens, wanted at most {} (option 'max_length')", example.ids.size(), most);
      if (options_.truncation == Truncation::kError) {
        refused = fail(found);
        return;
      }
      if (options_.truncation == Truncation::kDrop) return drop(RowExamples::Dropped::kLong, found);
      const size_t dropped_tokens = options_.truncation == Truncation::kKeepEnd ? example.ids.size() - most : 0;
      example.ids.erase(example.ids.begin(), example.ids.begin() + static_cast<ptrdiff_t>(dropped_tokens));
      example.trained.erase(example.trained.begin(), example.trained.begin() + static_cast<ptrdiff_t>(dropped_tokens));
      example.ids.resize(most), example.trained.resize(most);
      if (!example.weights.empty()) {
        example.weights.erase(example.weights.begin(), example.weights.begin() + static_cast<ptrdiff_t>(dropped_tokens));
        example.weights.resize(most);
      }
      example.prompt =
          static_cast<uint32_t>(std::min(most, example.prompt - std::min<size_t>(dropped_tokens, example.prompt)));
      ++made.truncated;
    }
    if (example.role == ExampleRole::kPrompt || example.trained_tokens() > 0) continue;
    const std::string found = format("none of its {} tokens is learnt{}", example.ids.size(),
                                     made.truncated > 0 ? ", once it is cut to option 'max_length'" : "");
    if (options_.refuses_untrained) {
      refused = fail(found);
      return;
    }
    return drop(RowExamples::Dropped::kUntrained, found);
  }
}

Result<RowExamples> ExampleMaker::make(const TrainingRow& row) {
  RowExamples made;
  written_control_.clear();
  TSR_ASSIGN_OR_RETURN(made.examples, make_whole(row));
  Status refused;
  limit(made, refused);
  if (!refused.ok()) return refused;
  if (is_same_pair(made.examples)) {
    const std::string found = format("its answers are the same {} tokens{}", made.examples[0].ids.size(),
                                     made.truncated > 0 ? ", once they are cut to option 'max_length'" : "");
    if (options_.refuses_untrained) return fail(found);
    made = {{}, RowExamples::Dropped::kUntrained, found, 0};
  }
  made.written_control = std::move(written_control_);
  return made;
}

}  // namespace tessera
