// Scorer: tells how likely each token of given texts is to the model, given the tokens before it. Texts are
// cut into windows (engine/sampling/score_windows.h), several of which are computed at once. One thread at a
// time, except for `cancel`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/inference/prefix_scores.h"
#include "engine/program/program_runner.h"
#include "engine/program/report.h"
#include "engine/sampling/score_windows.h"
#include "engine/settings/window_settings.h"

namespace tessera {

class Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> create(std::shared_ptr<Runtime> runtime,
                                                std::shared_ptr<SharedModel> model, const Options& options);

  // Begins with other texts: `ids` of all, one text after another, and the length of each.
  Status start(std::span<const int32_t> ids, std::span<const size_t> lengths);
  // Computes the next windows; gives the share that is done. After an error the same windows come again.
  Result<double> step();
  // `step` until all is done.
  Status finish();

  // Natural logarithms of all tokens' probabilities, when all steps are done; NaN for a token without one
  // before it.
  Result<std::span<const float>> logprobs() const;
  // 1 where no token was likelier, else 0.
  Result<std::span<const uint8_t>> greedy() const;

  Result<std::string> report_json();
  Runtime& runtime() const { return *runtime_; }
  void cancel();  // any thread

 private:
  Scorer() = default;
  Status prepare_windows();
  // Batch: windows that are computed at once, by one entry.
  struct Batch {
    size_t entry = 0, first_window = 0, windows = 0;
  };
  Status feed_positions();
  Status check_ids(std::span<const int32_t> ids, std::span<const size_t> lengths) const;
  void make_batches();
  Status feed(const Batch& batch);
  Status keep_results(const Batch& batch);
  Status check_done() const;

  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<SharedModel> model_;
  Options options_;
  ScorerSettings settings_;
  std::vector<ScoreEntry> entries_;                    // longest first
  std::unique_ptr<ProgramRunner> running_;             // null: nothing wanted windows yet
  std::atomic<ProgramRunner*> running_now_ = nullptr;  // the same, for `cancel`
  std::unique_ptr<PrefixScores> shared_;               // of the texts started last; null: windows
  int32_t vocabulary_ = 0;
  int32_t bos_ = -1;  // the token that begins windows; -1: none

  std::vector<int32_t> ids_;
  std::vector<ScoreWindow> windows_;  // by entry
  std::vector<Batch> batches_;
  size_t next_batch_ = 0;
  int64_t all_positions_ = 0;  // of all batches, padding included
  bool started_ = false;
  std::vector<float> logprobs_;
  std::vector<uint8_t> greedy_;
  std::vector<int32_t> tokens_, labels_;  // [batch, T] of the batch in progress
  std::vector<float> nll_, margin_;
  ScorerReport report_;
  std::atomic<bool> cancelled_{false};
};

// The token that begins windows; -1: none. kFailedPrecondition where the tokenizer has none and one is wanted.
Result<int32_t> window_bos(const Tokenizer* tokenizer, WindowBos bos, std::string_view consumer);

}  // namespace tessera
