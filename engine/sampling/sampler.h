// Sampler: draws the tokens of one text from rows of logits. The rules of a draw, in their order:
//
//  1. repetition_penalty r: the logit l of a token of the prompt or the text becomes l / r where it is positive, else
//     l * r (Keskar et al., "CTRL", 2019, section 4.1, as Hugging Face's transformers does it).
//  2. frequency_penalty f and presence_penalty p: l - f * count - p where count, the times that the token came in the
//     text without its prompt, is not 0 (OpenAI's API; vLLM). Of both kinds, penalty_last: only the last so many
//     tokens of prompt and text count.
//  3. logit_bias is added (OpenAI's API).
//  4. Tokens that the mask forbids, and end tokens while the text has fewer than min_tokens, are out. Where that would
//     leave no token, end tokens stay: a grammar that is complete ends its text.
//  5. temperature t: 0 takes the largest logit, the lowest token on a tie; else probabilities are softmax(l / t). It
//     comes before what follows, as in transformers and vLLM.
//  6. top_k: the k likeliest tokens stay (Fan et al., "Hierarchical Neural Story Generation", 2018).
//  7. typical_p: tokens stay by how near -ln p is to the entropy of what is left, nearest first, until their probability
//     reaches typical_p (Meister et al., "Locally Typical Sampling", 2023).
//  8. top_p: the shortest head, likeliest first, whose probability reaches top_p (Holtzman et al., "The Curious Case of
//     Neural Text Degeneration", 2020).
//  9. min_p: tokens stay whose probability is at least min_p of the largest that is left (Nguyen et al., "Turning Up
//     the Heat: Min-p Sampling", 2024). The order 6 to 9 is llama.cpp's.
// 10. One uniform number, a function of seed, position and sequence, draws among them in proportion.
//
// With temperature, top_k and top_p alone the token is that of the op "sample" with the same seed and position, bit for
// bit: both draw by graph/base/token_draw.h. Reals are rounded to f32 as the op's are. A token depends on settings, seed,
// sequence, position, history and its own row of logits alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/token_counts.h"
#include "engine/sampling/sampling_settings.h"
#include "engine/sampling/token_candidates.h"
#include "graph/base/result.h"
#include "graph/base/token_draw.h"

namespace tessera {

// Space that draws work in, 20 bytes a token of the vocabulary: one a thread, for any number of Samplers.
struct SamplerScratch {
  std::vector<float> logits;
  CandidateSpace candidates;
};

struct TokenProbability {
  int32_t token = 0;
  double probability = 0;
};

// The text that a Sampler draws tokens of.
struct SamplerText {
  int64_t vocabulary = 0;            // tokens of a row of logits
  std::span<const int32_t> prompt;   // read while the Sampler is made
  std::span<const int32_t> end_ids;  // of the model, without stop_ids
  uint64_t seed = 0;
  uint64_t sequence = 0;  // of the texts of one request, each of which draws numbers of its own
};

// A Sampler is used by one thread at a time.
class Sampler {
 public:
  // kInvalidArgument for tokens outside the vocabulary.
  static Result<Sampler> create(std::shared_ptr<const SamplingSettings> settings, const SamplerText& text);

  // The token at `position`, the number of tokens before it. logits [V] are those of the model and stay as they are; `mask`
  // has bit token % 32 of word token / 32 set for tokens that are allowed, or is empty: all are. kInvalidArgument for
  // another size; kFailedPrecondition where no token is left.
  Result<int32_t> draw(std::span<const float> logits, std::span<const uint32_t> mask, int64_t position,
                       SamplerScratch& scratch) const;

  // The tokens that `draw` may give and with which probability, by token.
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits,
                                                     std::span<const uint32_t> mask,
                                                     SamplerScratch& scratch) const;

  // The token belongs to the text from now on.
  void accept(int32_t token);

  // Whether the token ends the text: one of stop_ids or, unless ignore_eos, of the model's.
  bool ends(int32_t token) const;
  // Whether an end token ends the text now; min_tokens holds back none where it does not.
  void set_may_end(bool may_end) { may_end_ = may_end; }

 private:
  Sampler() = default;

  // A row after rules 1 to 4, and its largest logit.
  struct Row {
    sampling::Logits<float> logits;
    sampling::Largest top;
  };
  Result<Row> adjust(std::span<const float> logits, std::span<const uint32_t> mask,
                     SamplerScratch& scratch) const;
  void penalize(std::span<float> logits) const;
  CandidateRules rules() const;

  std::shared_ptr<const SamplingSettings> settings_;
  int64_t vocabulary_ = 0, generated_ = 0;
  uint64_t seed_ = 0, sequence_ = 0;
  std::vector<int32_t> end_ids_;  // that `ends` knows; sorted, each once
  bool has_penalties_ = false, may_end_ = true;
  TokenCounts counts_;  // with penalties
};

}  // namespace tessera
