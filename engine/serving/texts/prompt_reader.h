// PromptReader: the result of a request that only reads its prompt: vectors or scores of its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/pooling.h"
#include "engine/serving/texts/sequence.h"

namespace tessera {

struct PromptTask {
  enum class Kind : uint8_t {
    kVector,  // pooled from the hidden states of all tokens
    kHidden,  // those hidden states
    kScores   // log probabilities of the tokens from `first` on
  } kind = Kind::kVector;
  EmbeddingForm form = {};  // of kVector
  int64_t first = 0;        // of kScores

  bool reads_hidden() const { return kind != Kind::kScores; }
};

struct PromptResult {
  bool is_scores = false;
  std::vector<float> values;    // [rows, width]; of scores [tokens], NaN for a text's first token
  std::vector<uint8_t> greedy;  // of scores: 1 if no token was likelier
};

class PromptReader {
 public:
  // width: size of a hidden state.
  PromptReader(const PromptTask& task, std::span<const int32_t> prompt, size_t width);

  // Sets the tokens to compute and the requested rows; a causal model skips tokens after the last relevant one.
  void prepare(Sequence& sequence) const;
  // Adds the next requested rows: hidden states [n, width], or logits [n,
  // vocabulary] of `first` and the tokens after it. `order` is scratch.
  void take_hidden(std::span<const float> rows);
  Status take_logits(std::span<const float> rows, int64_t first, int64_t count, std::vector<int32_t>& order);
  // Call after all rows. kNotFinite if a number is not finite.
  Result<PromptResult> finish();

 private:
  const PromptTask task_;
  const std::vector<int32_t> prompt_;
  std::optional<PooledVector> pooled_;
  size_t width_;
  PromptResult result_;
};

}  // namespace tessera
