// ExampleDataset: examples of training files, packed into rows or one per row. The packing is fixed;
// the order of rows is that of dataset.h. Tokens stay in a file; memory: about 50 bytes per example.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/data_settings.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenization.h"

namespace tessera {

class ExampleDataset final : public Dataset {
 public:
  static Result<std::shared_ptr<const Dataset>> read(const DataSettings& settings,
                                                     const std::shared_ptr<const Tokenizer>& tokenizer);

  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int64_t> count_eval_labels(int64_t rows) const override;
  Status check_trainable() const override;
  bool has_weights() const override { return train_.file->has_weights() || eval_.file->has_weights(); }
  Status check_trainable(PreferenceLoss loss) const override;
  bool is_wanted(int64_t number) const override;
  Status fill_mismatched(int64_t number, int64_t group, const DatasetRow& row) const override;
  std::string cache_folder() const override { return settings_.cache; }
  Result<std::string> info_json() const override;
  std::string note() const override;
  Result<std::string> example_json(int64_t number) const override;

 private:
  // Part: training or evaluation examples: records of a file, and their rows.
  struct Part {
    std::shared_ptr<const TokenFile> file;
    std::vector<uint32_t> records;  // by the example number of a piece
    PackedRows rows;
  };

  ExampleDataset() = default;
  Status choose_records();
  void pack(Part& part, bool shuffles) const;
  bool holds_pairs() const;  // one pair per row
  Status fill(int64_t number, const DatasetRow& row) const override;
  Status fill_piece(const Part& part, const ExamplePiece& piece, const DatasetRow& row, size_t at,
                    int32_t segment) const;
  Result<double> label_entropy() const;
  // The part of row `number`, which becomes the number within the part.
  const Part& part_of(int64_t& number) const;

  DataSettings settings_;
  TokenizedData data_;
  std::optional<TokenizedData> eval_data_;  // of option eval_file
  Part train_, eval_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tessera
