// PreferenceBatch: the inputs of a preference loss for a trainer's
// batches, and the rewards of their answers. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/program/batch_rows.h"
#include "engine/program/program_runner.h"
#include "graph/transform/preference_loss.h"
#include "text/json.h"

namespace tessera {

// PreferenceMetrics: means over rows. The reward of an answer is beta times its
// log probability minus the reference's, if there is one. The log probability
// is a sum over tokens, or the mean for losses that read means (except kIpo).
struct PreferenceMetrics {
  double chosen_reward = 0,
         rejected_reward = 0;  // of single answers: wanted and unwanted ones
  double margin = 0;           // chosen - rejected
  double accuracy =
      0;  // share of pairs whose chosen answer has the higher reward; of single answers, the share on the
          // correct side of the batch's reference point
};

Json rewards_json(const PreferenceMetrics& metrics);  // {"chosen_reward", ...}, as in tsr_step

class PreferenceBatch {
 public:
  // `reference`: of reference_logprobs; empty if the loss has none. The dataset must outlive it.
  PreferenceBatch(const PreferenceOptions& options, const Dataset& dataset, int64_t batch,
                  std::vector<double> reference);

  static bool is_own_input(std::string_view input);  // inputs that `feed` feeds, other than the rows'

  // Feeds `entry` with rows `numbers` of the dataset, held by `rows`. Each counts
  // `share` in the loss, and labels of its token loss `token_share`. Numbers from
  // `count` on are padding without weight. kKto runs kMismatchedEntry first.
  Status feed(ProgramRunner& runner, std::string_view entry, std::span<const int64_t> numbers, int64_t count,
              BatchRows& rows, double share, double token_share);
  // Number of labels of the token loss.
  int64_t count_token_labels(const BatchRows& rows, int64_t count) const;

  // Adds metrics of the last batch, after `entry` has run.
  Status add_metrics(ProgramRunner& runner, std::string_view entry);
  PreferenceMetrics take_metrics();  // metrics since the last call

 private:
  void fill_rows(BatchRows& rows);
  Status find_reference_point(ProgramRunner& runner, std::span<const int64_t> numbers);
  double reference_of(int64_t number, int64_t answer) const {
    return reference_.empty() ? 0 : reference_[static_cast<size_t>(2 * number + answer)];
  }
  Status feed_floats(ProgramRunner& runner, std::string_view entry, std::string_view input,
                     const std::vector<float>& values, const Shape& shape) const;

  const PreferenceOptions options_;
  const Dataset& dataset_;
  const std::vector<double> reference_;
  const int64_t seq_;
  BatchRows mismatched_;  // of kKto
  // Rows of the last batch.
  std::vector<int64_t> numbers_;
  int64_t count_ = 0;
  double reference_point_ = 0;            // of kKto
  std::vector<double> labels_of_answer_;  // [batch, answers]
  std::vector<float> weights_[2], token_weights_;

  double chosen_ = 0, rejected_ = 0;  // sums of rewards
  int64_t chosen_count_ = 0, rejected_count_ = 0, right_ = 0, rows_ = 0;
};

}  // namespace tessera
