// Embedder: computes a row of numbers per text: a pooled vector or a classifier's
// output. Texts of similar length are batched. One thread at a time, except `cancel`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text_ids.h"
#include "engine/inference/prompt_engine.h"
#include "engine/program/program_runner.h"
#include "engine/program/report.h"
#include "engine/settings/embedder_settings.h"
#include "serialize/class_head.h"

namespace tessera {

class Embedder {
 public:
  static Result<std::unique_ptr<Embedder>> create(std::shared_ptr<Runtime> runtime,
                                                  std::shared_ptr<SharedModel> model, const Options& options);

  // Starts over with other texts; with option `pairs` two consecutive texts are one.
  Status start(std::span<const std::string_view> texts);
  // Starts with token ids: `ids` of all texts, and each text's length, 1 to seq.
  Status start_ids(std::span<const int32_t> ids, std::span<const size_t> lengths);
  // Computes the next texts and returns the share done. After an error the same texts are retried.
  Result<double> step();
  // Steps until everything is done.
  Status finish();

  // [texts, width], after the last step.
  Result<std::span<const float>> rows() const;
  size_t width() const { return static_cast<size_t>(report_.width); }
  bool reads_pairs() const { return settings_.pairs; }

  Result<std::string> report_json();
  Runtime& runtime() const { return *runtime_; }
  void cancel();  // any thread

 private:
  Embedder() = default;
  Status prepare_batches();
  Result<std::vector<TextIds>> read_texts(std::span<const std::string_view> texts, int64_t most) const;
  Result<bool> share_prefixes(std::vector<TextIds> texts);
  Result<std::optional<int64_t>> submit(size_t text);
  // Batch: texts that are computed at once, by one entry: order_[first, first + count).
  struct Batch {
    size_t entry = 0, first = 0, count = 0;
  };
  Status choose_output(const SharedModel& model, const Graph& forward);
  Status feed_positions();
  void begin();
  Status feed(const Batch& batch);
  Status keep_rows(const Batch& batch);
  Status check_done() const;
  size_t read_tokens(std::span<const int32_t> ids) const;

  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<SharedModel> model_;
  Options options_;
  EmbedderSettings settings_;
  std::vector<ScoreEntry> entries_;                      // longest first
  std::unique_ptr<ProgramRunner> running_;               // null: nothing wanted batches yet
  std::atomic<ProgramRunner*> running_now_ = nullptr;    // the same, for `cancel`
  std::unique_ptr<PromptEngine> prompts_;                // of the texts started last; null: batches
  std::shared_ptr<const Tokenizer> tokenizer_;           // null: ids alone
  std::string output_;                                   // of the graph
  ClassActivation activation_ = ClassActivation::kNone;  // of probabilities
  int32_t second_type_ = 0;                              // the type of a pair's second text
  int32_t vocabulary_ = 0;
  int64_t padding_ = -1;  // padding token that a classifier skips; -1: none

  std::vector<TextIds> texts_;
  std::vector<size_t> order_;  // by entry
  std::vector<Batch> batches_;
  size_t next_batch_ = 0;
  int64_t all_positions_ = 0;  // of all batches, with padding
  bool started_ = false;
  std::vector<float> rows_;
  std::vector<int32_t> tokens_, segments_, types_;  // [batch, T] of the present batch
  std::vector<float> values_;                       // [batch, T, width]
  EmbedderReport report_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace tessera
