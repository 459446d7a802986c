// ServedText: one text of a request in progress: its sequence,
// sampler, decoder and parser. One thread at a time.
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

// ServedScratch: buffers shared by all texts of a server.
struct ServedScratch {
  SamplerScratch sampler;
  std::vector<uint32_t> mask;
  std::vector<int32_t> order;
};

class ServedText {
 public:
  // Model: the properties of the model that texts need.
  struct Model {
    int64_t vocabulary = 0;
    size_t hidden_width = 0;  // 0: hidden states are not available
    std::vector<int32_t> end_ids;
    std::shared_ptr<const Tokenizer> tokenizer;  // null: events have no text
    bool repairs_text = true;                    // invalid UTF-8 becomes U+FFFD
    bool keeps_answers = true;                   // later texts may reuse the pages of generated tokens
  };
  // Creates text `index` of the request, at most `most` tokens
  // long. kInvalidArgument for tokens outside the vocabulary.
  static Result<std::unique_ptr<ServedText>> create(const Model& model, const ServingRequest& request,
                                                    int64_t number, int32_t index, int64_t most);

  Sequence sequence;
  int64_t request() const { return request_; }
  int32_t index() const { return index_; }

  // Marks the first step that computes it.
  void begin();
  bool has_begun() const { return has_begun_; }
  // Estimate of the tokens still to compute: those of the prompt, and at most kMostExpected generated
  // ones, since texts may end early. Until it has begun, the cached tokens of the prompt are subtracted.
  static constexpr int64_t kMostExpected = 256;
  int64_t expected_tokens() const;
  void expect_cached(int64_t tokens) { expected_cached_ = tokens; }
  // Draws from the logits of the last token and adds the events: a token, the end,
  // or a request for the caller's logits; then the row is kept until `answer`.
  void take(std::span<const float> logits, ServedScratch& scratch, std::vector<ServingEvent>& events);
  // Adds log probabilities of the prompt, from the rows of tokens [first, first + rows).
  void take_prompt(std::span<const float> logits, int64_t first, int64_t rows, ServedScratch& scratch,
                   std::vector<ServingEvent>& events);
  // Whether nothing is generated. read_logits and read_hidden take the requested
  // rows of tokens [first, first + rows); the text ends with the last.
  bool reads_prompt() const { return reader_.has_value(); }
  void read_logits(std::span<const float> logits, int64_t first, int64_t rows, ServedScratch& scratch,
                   std::vector<ServingEvent>& events);
  void read_hidden(std::span<const float> hidden, int64_t rows, std::vector<ServingEvent>& events);
  bool waits_for_answer() const { return !kept_logits_.empty(); }
  std::span<const float> kept_logits() const { return kept_logits_; }
  void answer(std::span<const float> logits, ServedScratch& scratch, std::vector<ServingEvent>& events);

  // Number of drafts for the next step, at most `most`; 0 for a while after failures.
  size_t draft_limit(size_t most);
  // Proposes n-gram drafts, at most `most`. record_drafts records how many were accepted.
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
  void emit_text(std::string text, ServingEvent& event);
  AnswerDelta take_apart(std::string_view text);
  std::shared_ptr<const KeptText> kept_text(ServingEvent::Finish why) const;
  void finish_reading(std::vector<ServingEvent>& events);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const SamplingSettings> sampling_;
  Sampler sampler_;
  std::optional<StructuredText> structured_;  // null: unconstrained
  const std::vector<int32_t> end_ids_;        // the model's end tokens
  std::unique_ptr<TextDecoder> decoder_;  // null without a tokenizer
  TextStream stream_;
  std::optional<ServedAnswer> answer_;
  std::optional<PromptReader> reader_;
  const bool changes_logits_, keeps_sequence_, repairs_text_;
  int64_t request_ = 0, prompt_ = 0, most_ = 0;  // tokens of the prompt, and of the sequence at most
  int64_t emitted_prompt_ = 0;                             // tokens of the prompt whose log probabilities were emitted
  int64_t text_begin_ = 0;                       // the text's first token
  size_t stream_begin_ = 0, text_bytes_ = 0;     // bytes of stream_ before the text, and bytes emitted
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
