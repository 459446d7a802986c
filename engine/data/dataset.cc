#include "engine/data/dataset.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "engine/base/text_file.h"
#include "engine/data/data_settings.h"
#include "engine/data/example_dataset.h"
#include "engine/data/text_dataset.h"
#include "graph/base/text.h"
#include "serialize/training_data/data_content.h"

namespace tessera {
namespace {

// Whether an option or the name marks the file as rows; else its content decides.
bool is_named_rows(const std::string& path, const Options& options) {
  if (options.contains("files")) return true;
  if (const auto kind = options.find("kind"); kind != options.end()) {
    const auto* const text = std::get_if<std::string>(&kind->second);
    if (text == nullptr || *text != "auto") return true;  // a non-text value is reported elsewhere
  }
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string quoted_name(const std::string& path) {
  return path == "-" ? "dataset: standard input" : format("dataset: '{}'", path);
}

// Whether a file's first bytes look like rows.
Result<bool> file_holds_rows(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;  // reading it reports the error
  std::string head(kContentHead, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return holds_rows(head, file.eof(), quoted_name(path), path);
}

Result<std::shared_ptr<const Dataset>> read_plain_text(std::string_view text, const std::string& name,
                                                       const Tokenizer& tokenizer, const Options& options) {
  Result<std::shared_ptr<const TextDataset>> made = TextDataset::from_text(text, name, tokenizer, options);
  if (made.ok()) return std::shared_ptr<const Dataset>(*std::move(made));
  const bool is_named = made.status().message().find(name) != std::string_view::npos;
  return is_named ? made.status() : made.status().with_context(name);
}

// The name of rows in memory in messages.
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
             "(JSON lines; docs/guides/training-data.md), or loss cross_entropy",
             name_of(loss), is_paired(loss) ? "preference" : "unpaired"));
}

Status Dataset::fill_mismatched(int64_t, int64_t, const DatasetRow&) const {
  return Status(StatusCode::kInternal, "the dataset has no single answers");
}

Status check_dataset_options(const std::string& path, const Options& options) {
  if (is_plain(options)) return TextDataset::check_options(options);
  // A pipe's content is known only after reading; until then all options pass.
  if (is_named_rows(path, options) || !is_regular_file(path))
    return read_data_settings(path, options).status();
  TSR_ASSIGN_OR_RETURN(const bool rows, file_holds_rows(path));
  return rows ? read_data_settings(path, options).status() : TextDataset::check_options(options);
}

Result<std::shared_ptr<const Dataset>> open_dataset(const std::string& path,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options) {
  const auto read_text = [&]() -> Result<std::string> {
    return path == "-" ? read_standard_input("dataset") : read_text_file(path, "dataset", SIZE_MAX);
  };
  TSR_RETURN_IF_ERROR(check_dataset_options(path, options));
  if (is_plain(options)) {
    TSR_ASSIGN_OR_RETURN(const std::string text, read_text());
    return read_plain_text(text, quoted_name(path), *tokenizer, options);
  }
  if (is_named_rows(path, options)) {
    TSR_ASSIGN_OR_RETURN(const DataSettings settings, read_data_settings(path, options));
    return ExampleDataset::read(settings, tokenizer);
  }
  bool rows = false;
  std::string text;
  if (is_regular_file(path)) {
    TSR_ASSIGN_OR_RETURN(rows, file_holds_rows(path));
  }
  if (!rows) {
    TSR_ASSIGN_OR_RETURN(text, read_text());
    TSR_ASSIGN_OR_RETURN(rows, holds_rows(std::string_view(text).substr(0, kContentHead),
                                          text.size() <= kContentHead, quoted_name(path), path));
    if (!rows) return read_plain_text(text, quoted_name(path), *tokenizer, options);
  }
  TSR_ASSIGN_OR_RETURN(DataSettings settings, read_data_settings(path, options));
  settings.is_told_by_content = true;
  if (!text.empty()) settings.text = std::move(text);
  return ExampleDataset::read(settings, tokenizer);
}

Result<std::shared_ptr<const Dataset>> make_dataset(std::string_view text,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const Options& options) {
  bool rows = !is_plain(options);
  const bool is_named = is_named_rows("", options);
  if (rows && !is_named) {
    TSR_ASSIGN_OR_RETURN(rows, holds_rows(text.substr(0, kContentHead), text.size() <= kContentHead,
                                          format("dataset: {}", kInMemory), ""));
  }
  if (!rows) return read_plain_text(text, format("dataset: {}", kInMemory), *tokenizer, options);
  TSR_ASSIGN_OR_RETURN(DataSettings settings, read_text_settings(options));
  settings.text = text;
  settings.is_told_by_content = !is_named;
  return ExampleDataset::read(settings, tokenizer);
}

Status check_text_options(std::string_view text, const Options& options) {
  if (is_plain(options)) return TextDataset::check_options(options);
  if (is_named_rows("", options)) return read_text_settings(options).status();
  TSR_ASSIGN_OR_RETURN(const bool rows, holds_rows(text.substr(0, kContentHead), text.size() <= kContentHead,
                                                   format("dataset: {}", kInMemory), ""));
  return rows ? read_text_settings(options).status() : TextDataset::check_options(options);
}

Status check_plain_text(std::string_view text, const std::string& name, const std::string& path,
                        bool takes_tables) {
  TSR_ASSIGN_OR_RETURN(const bool rows, holds_rows(text.substr(0, kContentHead), text.size() <= kContentHead,
                                                   name, path, takes_tables));
  if (rows)
    return Status(
        StatusCode::kInvalidArgument,
        format("{} holds rows of JSON, wanted plain text: the braces and names would count as text; take the "
               "texts out of the rows (jq -r .text, say), or option 'kind' plain takes them as they are",
               name));
  return check_utf8(text, name);
}

}  // namespace tessera
