// TextDataset: token ids split into samples of seq + 1 (inputs and labels shifted by one), stride seq.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "text/tokenizer/written_control.h"

namespace tessera {

class TextDataset final : public Dataset {
 public:
  // Options are checked before the text is read.
  static Result<std::shared_ptr<const TextDataset>> create(std::vector<int32_t> tokens,
                                                           const Options& options);
  // `name` begins messages about the text. kInvalidArgument for a text that is binary or not UTF-8.
  static Result<std::shared_ptr<const TextDataset>> from_text(std::string_view text, const std::string& name,
                                                              const Tokenizer& tokenizer,
                                                              const Options& options);

  // Checks options of a text dataset.
  static Status check_options(const Options& options) { return read_sample_settings(options, true).status(); }

  // Entropy of the text's token frequencies,
  // nats per token: the loss of a unigram model.
  double unigram_entropy() const;
  // Sample at `place` of the endless training order: seq + 1 ids.
  std::span<const int32_t> training_sample(int64_t place) const { return sample(order_.at(place)); }

  uint64_t fingerprint() const override;
  Result<int64_t> count_eval_labels(int64_t rows) const override { return rows * seq_; }
  Result<std::string> info_json() const override;
  std::string note() const override;

 private:
  struct SampleSettings {
    int64_t seq;
    double eval_fraction;
    bool shuffle;
    uint64_t seed;
    bool special;  // written-out control tokens are encoded as such
  };
  static Result<SampleSettings> read_sample_settings(const Options& options, bool of_text);
  static Result<std::shared_ptr<TextDataset>> split_into_samples(std::vector<int32_t> tokens, const SampleSettings& settings);

  TextDataset() = default;
  Status fill(int64_t number, const DatasetRow& row) const override;
  std::span<const int32_t> sample(int64_t number) const;

  std::vector<int32_t> tokens_;
  TokenNameCounts written_control_;  // control tokens read as letters
};

}  // namespace tessera
