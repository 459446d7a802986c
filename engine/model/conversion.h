// Conversion: writes a model's file, or a model in memory, as .tsr, or as GGUF where the name ends so, step by step, a slice of a
// tensor at a time, so that memory does not grow with the file; quantised where that is asked for. Until `finish` the file has a
// temporary name, under which it is removed with the conversion. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/base/work_progress.h"
#include "engine/model/export.h"
#include "engine/model/model_contents.h"
#include "serialize/model_writer.h"
#include "serialize/opened_model.h"
#include "serialize/quantization.h"

namespace tessera {

class Conversion {
 public:
  static Result<std::unique_ptr<Conversion>> create(const std::string& in, const std::string& out,
                                                    const Options& options);

  // Writes a model in memory, whose values must not change until `finish`.
  static Result<std::unique_ptr<Conversion>> create(ModelContents contents, const std::string& out,
                                                    const Options& options);

  double done() const;  // share of the work; 1: `finish` can be called
  WorkProgress progress() const;
  Status step();                 // some hundredths of a second, the first perhaps more
  Result<std::string> finish();  // the file takes its name; a report, as tsr_conversion_finish has it

 private:
  struct Settings {
    SaveOptions save;
    bool verify = false;
    std::optional<QuantizationSettings> quantization;  // none: values stay as they are
  };
  Conversion(std::string out, Settings settings) : out_(std::move(out)), settings_(std::move(settings)) {}
  static Result<Settings> read_settings(const Options& options);

  enum class Phase : uint8_t { kOpen, kWrite, kIndex, kVerify, kReady, kFinished };

  Status open();
  Result<OpenedModel> open_source();
  Status check_source() const;  // that the file read is as it was opened
  Status quantize(OpenedModel& opened);
  Status write_slices();
  Status write_slice();
  Status finish_index();
  Status verify_slices();
  Status verify_slice();
  // Carries out `work` on the file being written: a failure in it is final.
  template <class Work>
  Status change_file(Work&& work);

  const std::string out_;
  const Settings settings_;
  std::unique_ptr<Export> export_;            // of GGUF: it does all; nothing below is used
  std::shared_ptr<const ByteSource> source_;  // the file, or
  std::optional<ModelContents> contents_;     // the model in memory
  std::string in_;                            // what is read, for messages
  Phase phase_ = Phase::kOpen;
  bool is_broken_ = false;
  std::optional<OpenedModel> opened_;
  std::optional<Quantization> quantization_;
  std::unique_ptr<ModelWriter> writer_;  // of opened_->model
  int64_t all_bytes_ = 0;                // of values
  int64_t written_bytes_ = 0, verified_bytes_ = 0;
  int64_t tensor_bytes_ = 0;            // of written_bytes_: of the tensor that is being written
  size_t next_ = 0;                     // of the values, in the present phase
  std::optional<OpenedModel> written_;  // the file, opened to be verified
  std::optional<TensorReader> reader_;  // of one of its values
  std::vector<std::byte> buffer_;
};

// Writes the model to a file, quantised; the report of tsr_model_quantize.
Result<std::string> quantize_model(std::shared_ptr<const SharedModel> model, const std::string& path,
                                   const Options& options);

}  // namespace tessera
