// A token is drawn by the sampler, masked by the grammar if there is one, and decoded; stop texts and the answer's parser
// decide which text an event has.
#include "engine/serving/texts/served_text.h"

#include <algorithm>
#include <utility>

#include "graph/base/hash.h"
#include "text/jinja/text.h"

namespace tessera {

using Kind = ServingEvent::Kind;
using Finish = ServingEvent::Finish;

namespace {

// Distinct for each text of each turn, equal for equal prompt and seed.
uint64_t seed_of_ids(const ServingRequest& request, int32_t index) {
  Hash hash;
  hash.add(request.seed);
  hash.add(static_cast<uint64_t>(index));
  for (const int32_t token : request.prompt) hash.add(static_cast<uint64_t>(token));
  return hash.value();
}

}  // namespace

ServedText::ServedText(const Model& model, const ServingRequest& request, Sampler sampler)
    : tokenizer_(model.tokenizer),
      sampling_(request.sampling),
      sampler_(std::move(sampler)),
      structured_(request.structured),
      end_ids_(model.end_ids),
      decoder_(tokenizer_ && !request.task ? tokenizer_->decoder() : nullptr),
      stream_(TextStream::sharing(request.stops)),
      changes_logits_(request.changes_logits),
      keeps_sequence_(request.keeps_sequence),
      repairs_text_(model.repairs_text) {}

Result<std::unique_ptr<ServedText>> ServedText::create(const Model& model, const ServingRequest& request,
                                                       int64_t number, int32_t index, int64_t most) {
  const SamplerText about{.vocabulary = model.vocabulary,
                          .prompt = request.prompt,
                          .end_ids = model.end_ids,
                          .seed = request.seed,
                          .sequence = static_cast<uint64_t>(index)};
  TSR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(request.sampling, about));
  std::unique_ptr<ServedText> text(new ServedText(model, request, std::move(sampler)));
  const auto prompt = std::ssize(request.prompt);
  const int64_t asked = request.sampling->max_tokens;
  text->request_ = number;
  text->index_ = index;
  text->prompt_ = prompt;
  text->text_begin_ = request.text_begin >= 0 ? request.text_begin : prompt;
  text->most_ = asked > 0 && asked < most - prompt ? prompt + asked : most;
  text->sequence.priority = request.priority;
  text->sequence.root = request.root;
  text->sequence.tokens = request.prompt;
  if (!model.keeps_answers) text->sequence.findable = prompt;
  if (request.sampling->prompt_logprobs >= 0 && index == 0) text->sequence.logits_end = prompt;
  if (request.task) {
    text->reader_.emplace(*request.task, request.prompt, model.hidden_width);
    text->reader_->prepare(text->sequence);
    text->most_ = text->sequence.size();
  }
  text->usage_.prompt_tokens = prompt;
  text->usage_.seed = request.seed;
  if (request.answer) text->answer_.emplace(request.answer, seed_of_ids(request, index));
  // The decoder needs the token before the text.
  if (text->decoder_) {
    TextStream before({});
    for (const int32_t token : request.prompt) (void)before.add(text->decoder_->add(token));
    (void)text->stream_.add(before.finish());  // an incomplete character, which the text may continue
    text->stream_begin_ = text->stream_.size();
  }
  // A stop text counts only where the grammar is complete.
  if (text->structured_)
    text->stream_.set_may_end([of = text.get()](size_t place) {
      return place >= of->stream_begin_ && of->structured_->can_end_at(place - of->stream_begin_);
    });
  return text;
}

ServingEvent ServedText::event(Kind kind) const {
  ServingEvent event;
  event.kind = kind;
  event.request = request_;
  event.index = index_;
  return event;
}

void ServedText::begin() {
  if (std::exchange(has_begun_, true)) return;
  usage_.cached_tokens = sequence.reused;
  usage_.waited_s = std::chrono::duration<double>(Clock::now() - submitted_).count();
}

int64_t ServedText::expected_tokens() const {
  const int64_t to_come = most_ - sequence.size() - 1;  // the last token is not computed
  const int64_t computed = has_begun_ ? sequence.computed : expected_cached_;
  return sequence.size() - computed + std::clamp<int64_t>(to_come, 0, kMostExpected);
}

void ServedText::take(std::span<const float> logits, ServedScratch& scratch,
                      std::vector<ServingEvent>& events) {
  if (waits_for_answer()) return;  // recomputed after a preemption
  if (!changes_logits_) return draw(logits, scratch, events);
  kept_logits_.assign(logits.begin(), logits.end());
  events.push_back(event(Kind::kLogits));
}

void ServedText::answer(std::span<const float> logits, ServedScratch& scratch,
                        std::vector<ServingEvent>& events) {
  const std::vector<float> kept = std::exchange(kept_logits_, {});
  draw(logits.empty() ? kept : logits, scratch, events);
}

void ServedText::take_prompt(std::span<const float> logits, int64_t first, int64_t rows,
                             ServedScratch& scratch, std::vector<ServingEvent>& events) {
  const auto width = static_cast<int64_t>(logits.size()) / rows;
  ServingEvent result = event(Kind::kPrompt);
  result.first = first == 0 ? 0 : first + 1;
  if (first == 0 && emitted_prompt_ == 0)  // the first token has none
    result.log_probabilities.push_back({{sequence.tokens[0], 0}, {}});
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t place = first + row + 1;
    if (place < emitted_prompt_ || place >= prompt_) continue;
    if (result.log_probabilities.empty()) result.first = place;
    result.log_probabilities.push_back(log_probabilities(
        logits.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width)),
        sequence.tokens[static_cast<size_t>(place)], sampling_->prompt_logprobs, scratch.order));
    emitted_prompt_ = place + 1;
  }
  sequence.logits_begin = first + rows;
  if (!result.log_probabilities.empty()) events.push_back(std::move(result));
}

void ServedText::read_logits(std::span<const float> logits, int64_t first, int64_t rows,
                             ServedScratch& scratch, std::vector<ServingEvent>& events) {
  const Status taken = reader_->take_logits(logits, first, rows, scratch.order);
  if (!taken.ok()) return finish(Finish::kFailed, taken, events);
  sequence.logits_begin = first + rows;
  if (sequence.logits_begin == sequence.logits_end) finish_reading(events);
}

void ServedText::read_hidden(std::span<const float> hidden, int64_t rows, std::vector<ServingEvent>& events) {
  reader_->take_hidden(hidden);
  sequence.hidden_begin += rows;
  if (sequence.hidden_begin == sequence.hidden_end) finish_reading(events);
}

void ServedText::finish_reading(std::vector<ServingEvent>& events) {
  Result<PromptResult> result = reader_->finish();
  if (!result.ok()) return finish(Finish::kFailed, result.status(), events);
  finish(Finish::kStop, {}, events);
  events.back().result = std::move(*result);
}

size_t ServedText::draft_limit(size_t most) {
  const int64_t left = most_ - sequence.size() - 1;  // after the next token
  if (changes_logits_ || left < 1) return 0;
  return acceptance_.wanted(std::min(most, static_cast<size_t>(left)));
}

std::vector<int32_t> ServedText::propose_drafts(size_t most) {
  const size_t wanted = draft_limit(most);
  if (wanted == 0) return {};
  const std::span<const int32_t> drafts = drafts_.propose(sequence.tokens, wanted);
  return {drafts.begin(), drafts.end()};
}

Result<int32_t> ServedText::draw_token(std::span<const float> logits, ServedScratch& scratch) {
  if (!structured_) return sampler_.draw(logits, {}, sequence.size(), scratch.sampler);
  return draw_allowed(logits, scratch);
}

Result<int32_t> ServedText::draw_allowed(std::span<const float> logits, ServedScratch& scratch) {
  // The tokenizer's vocabulary may differ from the model's rows.
  const size_t words = (logits.size() + 31) / 32;
  scratch.mask.assign(std::max(words, structured_->mask_words()), 0);
  TSR_RETURN_IF_ERROR(structured_->write_allowed(std::span(scratch.mask).first(structured_->mask_words())));
  const std::span<uint32_t> mask = std::span(scratch.mask).first(words);
  allow_ends(mask);
  sampler_.set_may_end(structured_->can_end());
  for (;;) {
    TSR_ASSIGN_OR_RETURN(const int32_t token, sampler_.draw(logits, mask, sequence.size(), scratch.sampler));
    if (!structured_->breaks_answer(token)) return token;
    mask[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  }
}

// End tokens are allowed exactly where the text is complete; those of stop_ids may be text elsewhere.
void ServedText::allow_ends(std::span<uint32_t> mask) const {
  const auto set = [&](int64_t token, bool is_allowed) {
    if (token < 0 || static_cast<size_t>(token) >= mask.size() * 32) return;
    uint32_t& word = mask[static_cast<size_t>(token) / 32];
    const uint32_t bit = 1u << (token % 32);
    word = is_allowed ? word | bit : word & ~bit;
  };
  const bool can_end = structured_->can_end();
  for (const int32_t token : end_ids_)
    if (sampler_.ends(token) && can_end)
      set(token, true);
    else if (!structured_->is_text(token))
      set(token, false);
  if (can_end)
    for (const int64_t token : sampling_->stop_ids) set(token, true);
}

void ServedText::draw(std::span<const float> logits, ServedScratch& scratch,
                      std::vector<ServingEvent>& events) {
  const Result<int32_t> drawn = draw_token(logits, scratch);
  if (!drawn.ok()) return finish(Finish::kFailed, drawn.status(), events);
  const int32_t token = *drawn;
  std::optional<PositionLogProbabilities> position;
  if (sampling_->logprobs >= 0 || sampling_->best_of > sampling_->n) {
    position = log_probabilities(logits, token, std::max<int64_t>(0, sampling_->logprobs), scratch.order);
    usage_.has_log_probability = true;
  }
  const bool has_position = sampling_->logprobs >= 0;
  if (sampler_.ends(token) && (!structured_ || structured_->can_end())) {
    usage_.stop_token = token;
    if (has_position) usage_.stop = std::move(position);
    return finish(Finish::kStop, {}, events);
  }
  const std::string bytes = decoder_ ? decode(token) : std::string();
  if (structured_) {
    const Status accepted = structured_->accept(token, bytes.size());
    if (!accepted.ok()) return finish(Finish::kFailed, accepted, events);
  }
  sampler_.accept(token);
  sequence.tokens.push_back(token);
  if (++usage_.tokens == 1)
    usage_.first_token_s = std::chrono::duration<double>(Clock::now() - submitted_).count();
  ServingEvent result = event(Kind::kToken);
  result.token = token;
  if (position) usage_.log_probability += position->own.log_probability;
  if (has_position) result.log_probabilities.push_back(std::move(*position));
  if (answer_) answer_->begin_token();
  if (decoder_) emit_text(add_text(token, bytes), result);
  events.push_back(std::move(result));
  if (stream_.stopped()) return finish(Finish::kStop, {}, events);
  if (structured_ && structured_->must_end()) return finish(Finish::kStop, {}, events);
  if (sequence.size() >= most_) finish(Finish::kLength, {}, events);
}

// Returns the text decided by the token. Control tokens have none unless
// they mark reasoning or tool calls; stop texts match their letters.
std::string ServedText::add_text(int32_t token, std::string_view bytes) {
  std::string text = stream_.add(bytes);
  if (answer_ && answer_->marker(token) != nullptr) return text;
  return text += stream_.add_hidden(tokenizer_->hidden_text(token));
}

// The token's text. Control tokens have none unless they mark reasoning or tool calls.
std::string ServedText::decode(int32_t token) {
  std::string bytes = decoder_->add(token);
  if (const std::string* const marker = answer_ ? answer_->marker(token) : nullptr) bytes += *marker;
  return bytes;
}

void ServedText::emit_text(std::string text, ServingEvent& event) {
  if (!answer_) {
    event.text = repairs_text_ ? jinja::valid_utf8(text) : std::move(text);
    return;
  }
  AnswerDelta delta = take_apart(text);
  event.text = std::move(delta.content);
  event.reasoning = std::move(delta.reasoning);
}

// Text under a grammar is content, whatever it looks like, unless that is of calls.
AnswerDelta ServedText::take_apart(std::string_view text) {
  const auto repaired = [this](std::string_view part) {
    return repairs_text_ ? jinja::valid_utf8(part) : std::string(part);
  };
  if (!structured_ || structured_->source().kind == GrammarSource::Kind::kCalls) return answer_->add(repaired(text));
  const size_t begin = std::exchange(text_bytes_, text_bytes_ + text.size());
  const size_t answer = structured_->answer_begin();
  const size_t place = answer == SIZE_MAX ? SIZE_MAX : stream_begin_ + answer;
  const size_t before = std::min(text.size(), place > begin ? place - begin : 0);
  AnswerDelta delta;
  if (before > 0) delta = answer_->add_start(repaired(text.substr(0, before)));
  if (before < text.size()) delta.content = answer_->add_content(repaired(text.substr(before))).content;
  return delta;
}

std::shared_ptr<const KeptText> ServedText::kept_text(Finish why) const {
  if (!structured_) return nullptr;
  return std::make_shared<const KeptText>(
      KeptText{.source = structured_->source(),
               .start = structured_->start(),
               .begin = static_cast<size_t>(text_begin_),
               .end = why == Finish::kStop ? sequence.tokens.size() : 0});
}

void ServedText::finish(Finish why, Status failure, std::vector<ServingEvent>& events) {
  if (std::exchange(ended_, true)) return;
  ServingEvent rest = event(Kind::kToken);
  if (decoder_ && !stream_.stopped()) {
    std::string held = stream_.add(decoder_->finish());
    held += stream_.finish();
    emit_text(std::move(held), rest);
  }
  if (answer_) {
    const AnswerDelta last = answer_->finish();
    rest.text += last.content;
    rest.reasoning += last.reasoning;
    usage_.reasoning_tokens = answer_->reasoning_tokens();
  }
  if (!rest.text.empty() || !rest.reasoning.empty()) events.push_back(std::move(rest));
  ServingEvent end = event(Kind::kEnd);
  end.finish = why;
  usage_.total_s = std::chrono::duration<double>(Clock::now() - submitted_).count();
  end.usage = usage_;
  end.failure = std::move(failure);
  if (answer_) end.message = answer_->message();
  if (keeps_sequence_) end.sequence = KeptSequence{sequence.short_root(), sequence.tokens, kept_text(why)};
  events.push_back(std::move(end));
}

}  // namespace tessera
