// PrefixScores: scores of texts by an engine. Common prefixes are computed and scored once. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/inference/prompt_engine.h"

namespace tessera {

class PrefixScores {
 public:
  // `ids` of all texts, which must stay valid, and the length of each. `bos` precedes every text; -1: none. `options`: of a scorer.
  // Null if windows are required: for a text that is longer than the context or begins with `bos`, and without an engine for the model.
  static Result<std::unique_ptr<PrefixScores>> start(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     const Options& options, std::span<const int32_t> ids,
                                                     std::span<const size_t> lengths, int32_t bos);
  // Computes for a moment; returns the done share.
  Result<double> step();
  bool is_done() const { return is_done_; }
  // Scores of all tokens, at the end, in a Scorer's order.
  std::span<const float> logprobs() const { return logprobs_; }
  std::span<const uint8_t> greedy() const { return greedy_; }
  Result<std::string> report_json();

 private:
  PrefixScores(std::span<const int32_t> ids, std::span<const size_t> lengths, int32_t bos);
  size_t before() const { return bos_ >= 0 ? 1 : 0; }
  std::span<const int32_t> tokens(size_t place) const { return tokens_[order_[place]]; }
  size_t first_scored(size_t place) const;
  Result<std::optional<int64_t>> submit(size_t place);
  Status take(size_t place, int64_t request);

  const int32_t bos_;
  std::vector<std::span<const int32_t>> tokens_;  // of each text
  std::vector<size_t> begins_;                    // of each text among all tokens
  std::vector<size_t> order_;   // texts in an order that follows each by the one with the longest common prefix
  std::vector<size_t> shared_;  // in that order: tokens shared with the previous text
  std::vector<float> logprobs_;
  std::vector<uint8_t> greedy_;
  bool is_done_ = false;
  std::unique_ptr<PromptEngine> engine_;
};

}  // namespace tessera
