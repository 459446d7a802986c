// Dataset: the rows of a training: texts cut into samples (text_dataset.h), examples of files
// (example_dataset.h), or the caller's arrays (array_dataset.h). Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/options.h"
#include "engine/data/sample_order.h"
#include "graph/transform/embedding.h"
#include "graph/transform/preference_loss.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// DatasetRow: output arrays of one row, [row_tokens] each: tokens; labels, the token to predict or -1;
// positions in the document; document numbers; label weights. The last three may be empty: not requested.
struct DatasetRow {
  std::span<int32_t> tokens, labels, positions, segments;
  std::span<float> weights = {};
};

class Dataset {
 public:
  // Layout: the separation that attention needs: none; padding after a text; documents that share a row.
  enum class Layout : uint8_t { kWhole, kPadded, kPacked };

  virtual ~Dataset() = default;
  int64_t seq() const { return seq_; }  // tokens of an answer, or of a row
  int64_t answers() const {
    return answers_;
  }  // answers in a row: 2 for pairs, which begin at tokens 0 and seq; else 1
  int64_t row_tokens() const { return seq_ * answers_; }
  int64_t train_samples() const { return order_.count; }  // rows of an epoch
  int64_t eval_samples() const { return eval_samples_; }
  int32_t largest_token() const { return largest_token_; }
  Layout layout() const { return layout_; }
  virtual uint64_t fingerprint() const = 0;  // hash of tokens, rows and order

  // Fills the row at `place` (0, 1, ...) of the endless training order.
  Status fill_training_row(int64_t place, const DatasetRow& row) const { return fill(order_.at(place), row); }
  Status fill_eval_row(int64_t number, const DatasetRow& row) const {
    return fill(order_.count + number, row);
  }
  // The row number at that place. Evaluation rows follow training rows.
  int64_t number_at(int64_t place) const { return order_.at(place); }
  Status fill_row(int64_t number, const DatasetRow& row) const { return fill(number, row); }
  // Counted labels of the first `rows` evaluation rows.
  virtual Result<int64_t> count_eval_labels(int64_t rows) const = 0;
  // kUnsupported for data without a token loss.
  virtual Status check_trainable() const { return {}; }
  virtual bool has_weights() const { return false; }  // label weights other than 0 and 1
  // kInvalidArgument for data that does not fit the loss.
  virtual Status check_trainable(PreferenceLoss loss) const;
  // For single answers: whether the answer of row `number` is wanted; and a mismatched row, the prompt with
  // a neighbour's answer: the previous row's in its group of `group` rows, for the first row the last one's.
  virtual bool is_wanted(int64_t) const { return true; }
  virtual Status fill_mismatched(int64_t number, int64_t group, const DatasetRow& row) const;
  virtual std::string cache_folder() const { return ""; }  // "": nothing is kept

  virtual Result<std::string> info_json() const = 0;
  // A note to the user about the data, or empty.
  virtual std::string note() const { return ""; }
  // {"ids", "trained", ...} of example `number`; kNotFound past the last, kFailedPrecondition without examples.
  virtual Result<std::string> example_json(int64_t number) const;

 protected:
  // Fills row `number`: training rows, then evaluation rows.
  virtual Status fill(int64_t number, const DatasetRow& row) const = 0;

  int64_t seq_ = 0, answers_ = 1, eval_samples_ = 0;
  int32_t largest_token_ = 0;
  Layout layout_ = Layout::kWhole;
  SampleOrder order_;
};

// The segments that attention needs for this layout.
std::optional<SegmentUse> segments_of(Dataset::Layout layout);

// Opens the dataset of a file: training rows if its content is JSON rows (data_content.h),
// its name ends in .jsonl or .ndjson, or an option says so ("kind", "files"); else a text.
// Option "kind" plain: always a text. kInvalidArgument for other content.
Result<std::shared_ptr<const Dataset>> open_dataset(const std::string& path,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options);
// Checks the options and a regular file's first bytes as `open_dataset` does.
Status check_dataset_options(const std::string& path, const Options& options);

// Makes the dataset of a text in memory.
Result<std::shared_ptr<const Dataset>> make_dataset(std::string_view text,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options);
Status check_text_options(std::string_view text, const Options& options);

// kInvalidArgument unless `text` is plain UTF-8 text: for rows, tables (unless
// `takes_tables`) and binary formats. `name` begins messages; `path` may be "".
Status check_plain_text(std::string_view text, const std::string& name, const std::string& path,
                        bool takes_tables);

}  // namespace tessera
