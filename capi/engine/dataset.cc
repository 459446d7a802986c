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

}  // namespace

Result<std::string> Dataset::example_json(int64_t) const {
  return Status(StatusCode::kFailedPrecondition,
                "the dataset is not made of examples of a file of training data");
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

}  // namespace tessera
