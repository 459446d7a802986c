// PrefixScores: scores of texts by an engine. What several texts begin with is computed and scored once. One thread.
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
  // `ids` of all texts, which stay, and the length of each. `bos` stands before every text; -1: none. `options`: of a scorer. Null
  // where windows have to do it: where a text is longer than the context or begins with `bos`, and where no engine serves.
  static Result<std::unique_ptr<PrefixScores>> start(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     const Options& options, std::span<const int32_t> ids,
                                                     std::span<const size_t> lengths, int32_t bos);
  // Computes for a moment; the share that is done.
  Result<double> step();
  bool is_done() const { return is_done_; }
  // Of all tokens, when all is done: as a Scorer's.
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
  std::vector<size_t> order_;   // of the texts: each follows the one with which it has most in common
  std::vector<size_t> shared_;  // in that order: tokens that the text before has, too
  std::vector<float> logprobs_;
  std::vector<uint8_t> greedy_;
  bool is_done_ = false;
  std::unique_ptr<PromptEngine> engine_;
};

}  // namespace tessera
