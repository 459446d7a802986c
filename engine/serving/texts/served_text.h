// ServedText: one text of a request while it is made: its sequence, and what its tokens are drawn by and turn into. One
// thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/sampling/text_stream.h"
#include "engine/serving/texts/draft_acceptance.h"
#include "engine/serving/texts/ngram_drafts.h"
#include "engine/serving/texts/prompt_reader.h"
#include "engine/serving/texts/sequence.h"
#include "engine/serving/texts/served_answer.h"
#include "engine/serving/texts/serving_event.h"
#include "engine/serving/texts/serving_request.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Space that all texts of a server work in.
struct ServedScratch {
  SamplerScratch sampler;
  std::vector<uint32_t> mask;
  std::vector<int32_t> order;
};

class ServedText {
 public:
  // Of the model: what its texts are written with.
  struct Model {
    int64_t vocabulary = 0;
    size_t hidden_width = 0;  // 0: hidden states cannot be had
    std::vector<int32_t> end_ids;
    std::shared_ptr<const Tokenizer> tokenizer;  // null: events have no text
    bool repairs_text = true;                    // bytes that are no UTF-8 become U+FFFD
    bool keeps_answers = true;                   // later texts find the pages of generated tokens
  };
  // Text `index` of the request; its sequence has at most `most` tokens. kInvalidArgument for tokens outside of the
  // vocabulary.
  static Result<std::unique_ptr<ServedText>> create(const Model& model, const ServingRequest& request,
                                                    int64_t number, int32_t index, int64_t most);

  Sequence sequence;
  int64_t request() const { return request_; }
  int32_t index() const { return index_; }

  // The step that computes it first begins.
  void begin();
  bool has_begun() const { return has_begun_; }
  // Tokens that are still to be computed, of its prompt and to come; of the latter at most kMostExpected are counted, since
  // texts may end before. Until it has begun, so many of the prompt are taken for cached.
  static constexpr int64_t kMostExpected = 256;
  int64_t expected_tokens() const;
  void expect_cached(int64_t tokens) { expected_cached_ = tokens; }
  // Takes the row of logits behind the last token, and adds what it brought: a token, or the end, or a wish for the
  // caller's logits; then the row is kept until `answer`.
  void take(std::span<const float> logits, ServedScratch& scratch, std::vector<ServingEvent>& events);
  // Log probabilities of tokens of the prompt: rows behind tokens [first, first + rows).
  void take_prompt(std::span<const float> logits, int64_t first, int64_t rows, ServedScratch& scratch,
                   std::vector<ServingEvent>& events);
  // Nothing is generated: rows of logits or of hidden states that the sequence wants, behind tokens [first, first + rows);
  // with the last of them it ends.
  bool reads_prompt() const { return reader_.has_value(); }
  void read_logits(std::span<const float> logits, int64_t first, int64_t rows, ServedScratch& scratch,
                   std::vector<ServingEvent>& events);
  void read_hidden(std::span<const float> hidden, int64_t rows, std::vector<ServingEvent>& events);
  bool waits_for_answer() const { return !kept_logits_.empty(); }
  std::span<const float> kept_logits() const { return kept_logits_; }
  void answer(std::span<const float> logits, ServedScratch& scratch, std::vector<ServingEvent>& events);

  // Tokens that may be guessed now, at most `most`; 0 where drafts failed lately.
  size_t draft_limit(size_t most);
  // Tokens that may come next, by what the text repeats; at most as many. And which of them were right.
  std::vector<int32_t> propose_drafts(size_t most);
  void record_drafts(size_t drafted, size_t accepted) { acceptance_.record(drafted, accepted); }
  double expected_accepted(size_t drafted) const { return acceptance_.expected(drafted); }

  void finish(ServingEvent::Finish why, Status failure, std::vector<ServingEvent>& events);
  bool has_ended() const { return ended_; }

 private:
  using Clock = std::chrono::steady_clock;
  ServedText(const Model& model, const ServingRequest& request, Sampler sampler);
  void draw(std::span<const float> logits, ServedScratch& scratch, std::vector<ServingEvent>& events);
  Result<int32_t> draw_token(std::span<const float> logits, ServedScratch& scratch);
  Result<int32_t> draw_allowed(std::span<const float> logits, ServedScratch& scratch);
  void allow_ends(std::span<uint32_t> mask) const;
  ServingEvent event(ServingEvent::Kind kind) const;
  std::string add_text(int32_t token, std::string_view bytes);
  std::string decode(int32_t token);
  void emit_text(std::string text, ServingEvent\& event);
  AnswerDelta take_apart(std::string_view text);
  std::shared_ptr<const KeptText> kept_text(ServingEvent::Finish why) const;
  void finish_reading(std::vector<ServingEvent>& events);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const SamplingSettings> sampling_;
  Sampler sampler_;
  std::optional<StructuredText> structured_;  // none: any text
  const std::vector<int32_t> end_ids_;        // of the model
  std::unique_ptr<TextDecoder> decoder_;  // null without a tokenizer
  TextStream stream_;
  std::optional<ServedAnswer> answer_;
  std::optional<PromptReader> reader_;
  const bool changes_logits_, keeps_sequence_, repairs_text_;
  int64_t request_ = 0, prompt_ = 0, most_ = 0;  // tokens of the prompt, and of all at most
  int64_t emitted_prompt_ = 0;                             // tokens of the prompt whose log probabilities were emitted
  int64_t text_begin_ = 0;                       // the text's first token
  size_t stream_begin_ = 0, text_bytes_ = 0;     // bytes of stream_ before the text, and those emitted
  int32_t index_ = 0;
  const Clock::time_point submitted_ = Clock::now();
  int64_t expected_cached_ = 0;
  std::vector<float> kept_logits_;
  NgramDrafts drafts_;
  DraftAcceptance acceptance_;
  ServedUsage usage_;
  bool has_begun_ = false, ended_ = false;
};

}  // namespace tessera
