// Export: writes a model as a Hugging Face folder or a GGUF file, in steps of a
// slice of a tensor, so that memory does not grow with the model. Until `finish` all
// output has temporary names, and is removed with the export. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/base/work_progress.h"
#include "engine/model/model_contents.h"
#include "engine/model/shared_model.h"
#include "serialize/atomic_folder.h"
#include "serialize/export/huggingface_export.h"
#include "serialize/export/peft_export.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"
#include "serialize/quantization.h"

namespace tessera {

enum class ExportFormat : uint8_t { kHuggingface, kGguf, kPeft, kGgufAdapter };

class Export {
 public:
  // Exports a model's file, which the first step opens.
  static Result<std::unique_ptr<Export>> create(const std::string& in, const std::string& out,
                                                const Options& options);
  // Exports the present values of a model in memory.
  static Result<std::unique_ptr<Export>> create(std::shared_ptr<SharedModel> model, const std::string& out,
                                                const Options& options);
  // Exports a model in memory whose values must not change until `finish`.
  static Result<std::unique_ptr<Export>> create(ModelContents given, const std::string& out,
                                                const Options& options);

  double done() const;           // share of the work; 1: `finish` is possible
  WorkProgress progress() const;
  Status step();                 // about 50 ms, the first perhaps more
  Result<std::string> finish();  // moves the output into place; returns the report of tsr_export_finish

 private:
  struct Settings {
    ExportFormat format = ExportFormat::kHuggingface;
    HuggingfaceExportSettings huggingface;
    PeftExportSettings peft;
    bool merged = false;
    std::optional<QuantizationSettings> quantization;  // for GGUF; nullopt: values are unchanged
    bool tokenizer = true;
  };
  enum class Phase : uint8_t { kOpen, kWrite, kReady, kFinished };

  Export(std::string in, std::string out, Settings settings)
      : in_(std::move(in)), out_(std::move(out)), settings_(std::move(settings)) {}
  static Result<Settings> read_settings(const Options& options, const std::string& out);
  static Status check_out(const std::string& out, ExportFormat format);

  Status open();
  Result<OpenedModel> open_source() const;
  Result<ExportContents> contents(OpenedModel& opened);
  Status write_slices();
  Status write_slice();
  Status write_texts();
  std::string path_of(const std::string& name) const;
  Status create_folder_of(const std::string& name) const;  // a file in a folder of the export's

  const std::string in_;  // source path; empty: a model in memory
  const std::string out_;
  const Settings settings_;
  std::shared_ptr<const ByteSource> source_;  // the file in_,
  std::shared_ptr<SharedModel> model_;        // or the model in memory,
  std::optional<ModelContents> given_;        // or its contents
  Phase phase_ = Phase::kOpen;
  bool is_broken_ = false;
  std::optional<OpenedModel> opened_;
  std::optional<Quantization> quantization_;
  ExportContents contents_;
  std::optional<AtomicFolder> folder_;
  std::optional<TensorFileWriter> writer_;      // writes the file before next_
  size_t next_ = 0;                             // index of the next file
  uint64_t all_bytes_ = 0, written_bytes_ = 0;  // tensor bytes: of all files, and written
};

}  // namespace tessera
