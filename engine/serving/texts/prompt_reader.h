// PromptReader: what a request computes of its prompt in place of a text: the vectors of its tokens, or how likely they are.
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
  std::vector<uint8_t> greedy;  // of scores: 1 where no token was likelier
};

class PromptReader {
 public:
  // width: of a hidden state.
  PromptReader(const PromptTask& task, std::span<const int32_t> prompt, size_t width);

  // The tokens that are computed, and what is wanted of them: of a causal model those after the last that matters do not.
  void prepare(Sequence& sequence) const;
  // The next rows that the sequence wants: of hidden states [n, width], or of logits [n, vocabulary], behind `first` and the
  // tokens after it. `order` is scratch.
  void take_hidden(std::span<const float> rows);
  Status take_logits(std::span<const float> rows, int64_t first, int64_t count, std::vector<int32_t>& order);
  // When all rows came. kNotFinite where a number is not finite.
  Result<PromptResult> finish();

 private:
  const PromptTask task_;
  const std::vector<int32_t> prompt_;
  std::optional<PooledVector> pooled_;
  size_t width_;
  PromptResult result_;
};

}  // namespace tessera
