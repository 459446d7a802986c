// Scorer: computes the log probability of each token of given texts.
// Texts are cut into windows (engine/sampling/score_windows.h),
// which are batched. One thread at a time, except `cancel`.
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

  // Starts over with other texts: the ids of all texts, and each text's length.
  Status start(std::span<const int32_t> ids, std::span<const size_t> lengths);
  // Computes the next windows and returns the share done. After an error the same windows are retried.
  Result<double> step();
  // Steps until everything is done.
  Status finish();

  // Natural log probabilities of all tokens, after
  // the last step; NaN for a first token without BOS.
  Result<std::span<const float>> logprobs() const;
  // 1 if no token was likelier, else 0.
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
  int32_t bos_ = -1;  // first token of windows; -1: none

  std::vector<int32_t> ids_;
  std::vector<ScoreWindow> windows_;  // by entry
  std::vector<Batch> batches_;
  size_t next_batch_ = 0;
  int64_t all_positions_ = 0;  // of all batches, with padding
  bool started_ = false;
  std::vector<float> logprobs_;
  std::vector<uint8_t> greedy_;
  std::vector<int32_t> tokens_, labels_;  // [batch, T] of the present batch
  std::vector<float> nll_, margin_;
  ScorerReport report_;
  std::atomic<bool> cancelled_{false};
};

// The first token of windows; -1: none. kFailedPrecondition if it is required and the tokenizer has none.
Result<int32_t> window_bos(const Tokenizer* tokenizer, WindowBos bos, std::string_view consumer);

}  // namespace tessera
