#include "capi/engine/dataset.h"

#include "capi/engine/data_settings.h"
#include "capi/engine/example_dataset.h"
#include "capi/engine/text_dataset.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

bool holds_rows(const std::string& path, const Options& options) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || options.contains("kind") ||
         options.contains("files");
}

// What messages call rows that lie in no file.
constexpr const char* kInMemory = "text in memory";

Result<DataSettings> read_text_settings(const Options& options) {
  if (options.contains("files"))
    return Status(StatusCode::kInvalidArgument,
                  "dataset: option 'files' is for files: wanted the path \"\" and no text");
  return read_data_settings(kInMemory, options);
}

}  // namespace

Result<std::string> Dataset::example_json(int64_t) const {
  return Status(StatusCode::kFailedPrecondition,
                "the dataset is not made of examples of a file of training data");
}

std::optional<SegmentUse> segments_of(Dataset::Layout layout) {
  if (layout == Dataset::Layout::kWhole) return std::nullopt;
  return layout == Dataset::Layout::kPacked ? SegmentUse::kDocuments : SegmentUse::kPadding;
}

Status Dataset::check_trainable(PreferenceLoss loss) const {
  return Status(
      StatusCode::kInvalidArgument,
      format("loss '{}' trains on rows of kind {}, and the dataset has no such rows: wanted a file of them "
             "(JSON lines; docs/training-data.md), or loss cross_entropy",
             name_of(loss), is_paired(loss) ? "preference" : "unpaired"));
}

Status Dataset::fill_mismatched(int64_t, int64_t, const DatasetRow&) const {
  return Status(StatusCode::kInternal, "the dataset has no single answers");
}

Status check_dataset_options(const std::string& path, const Options& options) {
  return holds_rows(path, options) ? read_data_settings(path, options).status()
                                   : TextDataset::check_options(options);
}

Result<std::shared_ptr<const Dataset>> open_dataset(const std::string& path,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options) {
  if (!holds_rows(path, options)) {
    TSR_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> text,
                         TextDataset::from_file(path, *tokenizer, options));
    return text;
  }
  TSR_ASSIGN_OR_RETURN(const DataSettings settings, read_data_settings(path, options));
  return ExampleDataset::read(settings, tokenizer);
}

Result<std::shared_ptr<const Dataset>> make_dataset(std::string_view text,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options) {
  if (!options.contains("kind")) {
    TSR_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> made,
                         TextDataset::from_text(text, *tokenizer, options));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(DataSettings settings, read_text_settings(options));
  settings.text = text;
  return ExampleDataset::read(settings, tokenizer);
}

Status check_text_options(const Options& options) {
  return options.contains("kind") ? read_text_settings(options).status()
                                  : TextDataset::check_options(options);
}

}  // namespace tessera
