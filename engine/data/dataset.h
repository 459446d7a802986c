// Dataset: what a training reads, row by row: texts cut into samples (text_dataset.h), examples of a file of training data
// (example_dataset.h), or rows of a caller's memory (array_dataset.h). Immutable; any thread.
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

// Places for one row, [row_tokens] each: tokens; for each the label, the token that should follow it or -1; its position in its
// document, the number of its document in the row, and the weight of its label. The last three may be empty: not wanted.
struct DatasetRow {
  std::span<int32_t> tokens, labels, positions, segments;
  std::span<float> weights = {};
};

class Dataset {
 public:
  // What attention has to keep apart: nothing; padding, which lies behind a text; documents that share a row.
  enum class Layout : uint8_t { kWhole, kPadded, kPacked };

  virtual ~Dataset() = default;
  int64_t seq() const { return seq_; }  // tokens of an answer, of other data of a row
  int64_t answers() const {
    return answers_;
  }  // in a row: 2 of pairs, which begin at tokens 0 and seq; else 1
  int64_t row_tokens() const { return seq_ * answers_; }
  int64_t train_samples() const { return order_.count; }  // rows of an epoch
  int64_t eval_samples() const { return eval_samples_; }
  int32_t largest_token() const { return largest_token_; }
  Layout layout() const { return layout_; }
  virtual uint64_t fingerprint() const = 0;  // of tokens, rows and order

  // The row at place `place` (0, 1, ...) of the endless training order.
  Status fill_training_row(int64_t place, const DatasetRow& row) const { return fill(order_.at(place), row); }
  Status fill_eval_row(int64_t number, const DatasetRow& row) const {
    return fill(order_.count + number, row);
  }
  // The number of the row at that place. Rows for evaluation follow those for training.
  int64_t number_at(int64_t place) const { return order_.at(place); }
  Status fill_row(int64_t number, const DatasetRow& row) const { return fill(number, row); }
  // Labels that count in the first `rows` rows for evaluation.
  virtual Result<int64_t> count_eval_labels(int64_t rows) const = 0;
  // kUnsupported for data that the token loss does not train on.
  virtual Status check_trainable() const { return {}; }
  virtual bool has_weights() const { return false; }  // of labels, other than 0 and 1
  // kInvalidArgument for data that the loss does not train on.
  virtual Status check_trainable(PreferenceLoss loss) const;
  // Data with single answers say whether the answer of row `number` is wanted, and fill `row` with its prompt and a
  // neighbour's answer: the row before it in its group of `group` rows; the first row takes the group's last.
  virtual bool is_wanted(int64_t) const { return true; }
  virtual Status fill_mismatched(int64_t number, int64_t group, const DatasetRow& row) const;
  virtual std::string cache_folder() const { return ""; }  // "": nothing is kept

  virtual Result<std::string> info_json() const = 0;
  // What the user of the data should know; empty for nothing.
  virtual std::string note() const { return ""; }
  // {"ids", "trained", ...} of example `number`; kNotFound past the last, kFailedPrecondition where there are none.
  virtual Result<std::string> example_json(int64_t number) const;

 protected:
  // Row `number`: those for training, then those for evaluation.
  virtual Status fill(int64_t number, const DatasetRow& row) const = 0;

  int64_t seq_ = 0, answers_ = 1, eval_samples_ = 0;
  int32_t largest_token_ = 0;
  Layout layout_ = Layout::kWhole;
  SampleOrder order_;
};

// The segments that attention needs for rows of that layout.
std::optional<SegmentUse> segments_of(Dataset::Layout layout);

// The dataset of a file: rows of training data where its content is rows of JSON (data_content.h), its name ends in .jsonl or
// .ndjson, or an option says so ("kind", "files"); else a text. Option "kind" plain: a text, whatever it looks like.
// kInvalidArgument for content that is neither.
Result<std::shared_ptr<const Dataset>> open_dataset(const std::string& path,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options);
// What `open_dataset` would say of its options, and of the first bytes of a file that is no pipe.
Status check_dataset_options(const std::string& path, const Options& options);

// The same of a text in memory.
Result<std::shared_ptr<const Dataset>> make_dataset(std::string_view text,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options);
Status check_text_options(std::string_view text, const Options& options);

// kInvalidArgument where `text` is no plain text in UTF-8: rows, a table (unless `takes_tables`), a binary format. `name` begins
// messages; `path` may be "".
Status check_plain_text(std::string_view text, const std::string& name, const std::string& path,
                        bool takes_tables);

}  // namespace tessera
