// Sampler: draws a text's tokens from rows of logits. The rules of a draw, in order:
//
//  1. repetition_penalty r: the logit l of a token in the prompt or text becomes l / r if positive, else l * r
//     (Keskar et al., "CTRL", 2019, section 4.1, as in transformers).
//  2. frequency_penalty f and presence_penalty p: l - f * count - p for tokens with count > 0 occurrences in the
//     text without its prompt (OpenAI's API; vLLM). For rules 1 and 2, penalty_last limits the history to that
//     many last tokens.
//  3. logit_bias is added (OpenAI's API).
//  4. Forbidden tokens of the mask, and end tokens before min_tokens, are excluded. End tokens stay if no other
//     token would: a complete grammar ends its text.
//  5. temperature t: 0 takes the largest logit, the lowest token on a tie; else probabilities are softmax(l / t).
//     It precedes the rules below, as in transformers and vLLM.
//  6. top_k: the k likeliest tokens stay (Fan et al., "Hierarchical Neural Story Generation", 2018).
//  7. typical_p: tokens are kept by the distance of -ln p from the entropy, nearest first, until their
//     probability reaches typical_p (Meister et al., "Locally Typical Sampling", 2023).
//  8. top_p: the shortest prefix, likeliest first, whose probability reaches top_p (Holtzman et al., "The Curious Case of
//     Neural Text Degeneration", 2020).
//  9. min_p: tokens with at least min_p times the largest remaining probability are kept (Nguyen et al., "Turning Up
//     the Heat: Min-p Sampling", 2024). The order 6 to 9 is llama.cpp's.
// 10. One uniform number, a function of seed, position and sequence, chooses in proportion to probability.
//
// With temperature, top_k and top_p alone the token equals that of the op "sample" for the same seed
// and position, bit for bit: both use graph/base/token_draw.h. Settings are rounded to f32, as the
// op's. A token depends on settings, seed, sequence, position, history and its row of logits only.
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

// SamplerScratch: buffers of draws, 20 bytes per token of the vocabulary; one per thread, for any number of Samplers.
struct SamplerScratch {
  std::vector<float> logits;
  CandidateSpace candidates;
};

// SamplerText: the text that a Sampler draws for.
struct SamplerText {
  int64_t vocabulary = 0;            // tokens of a row of logits
  std::span<const int32_t> prompt;   // read during creation
  std::span<const int32_t> end_ids;  // the model's, without stop_ids
  uint64_t seed = 0;
  uint64_t sequence = 0;  // number of the text in its request, which separates random streams
};

// One thread at a time.
class Sampler {
 public:
  // kInvalidArgument for tokens outside the vocabulary.
  static Result<Sampler> create(std::shared_ptr<const SamplingSettings> settings, const SamplerText& text);

  // Draws the token at `position`, the number of tokens before it. logits [V]: the model's,
  // unchanged. `mask`: bit token % 32 of word token / 32 is set for allowed tokens; empty:
  // all. kInvalidArgument for another size; kFailedPrecondition if no token is left.
  Result<int32_t> draw(std::span<const float> logits, std::span<const uint32_t> mask, int64_t position,
                       SamplerScratch& scratch) const;

  // Appends the token to the text.
  void accept(int32_t token);

  // Whether the token ends the text: it is in stop_ids or, unless ignore_eos, a model's end token.
  bool ends(int32_t token) const;
  // Sets whether an end token ends the text now; if not, min_tokens does not exclude any.
  void set_may_end(bool may_end) { may_end_ = may_end; }

 private:
  Sampler() = default;

  // Row: logits after rules 1 to 4, and the largest one.
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
  std::vector<int32_t> end_ids_;  // sorted, unique
  bool has_penalties_ = false, may_end_ = true;
  TokenCounts counts_;  // for penalties
};

}  // namespace tessera
