// Conversion: writes a model, from a file or memory, as .tsr, or as GGUF by its name, optionally
// quantised. It works in steps of a slice of a tensor, so that memory does not grow with the model. Until
// `finish` the output has a temporary name, and is removed with the conversion. One thread at a time.
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

  // Writes a model in memory; its values must not change until `finish`.
  static Result<std::unique_ptr<Conversion>> create(ModelContents contents, const std::string& out,
                                                    const Options& options);

  double done() const;           // share of the work; 1: `finish` is possible
  WorkProgress progress() const;
  Status step();                 // about 50 ms, the first perhaps more
  Result<std::string> finish();  // moves the file into place; returns the report of tsr_conversion_finish

 private:
  struct Settings {
    SaveOptions save;
    bool verify = false;
    std::optional<QuantizationSettings> quantization;  // nullopt: values are unchanged
  };
  Conversion(std::string out, Settings settings) : out_(std::move(out)), settings_(std::move(settings)) {}
  static Result<Settings> read_settings(const Options& options);

  enum class Phase : uint8_t { kOpen, kWrite, kIndex, kVerify, kReady, kFinished };

  Status open();
  Result<OpenedModel> open_source();
  Status check_source() const;  // checks that the source file is unchanged
  Status quantize(OpenedModel& opened);
  Status write_slices();
  Status write_slice();
  Status finish_index();
  Status verify_slices();
  Status verify_slice();
  // Runs `work` on the output file; any failure is final.
  template <class Work>
  Status change_file(Work&& work);

  const std::string out_;
  const Settings settings_;
  std::unique_ptr<Export> export_;            // for GGUF output, which does everything; the members below are then unused
  std::shared_ptr<const ByteSource> source_;  // the source file, or
  std::optional<ModelContents> contents_;     // the source model in memory
  std::string in_;                            // name of the source, for messages
  Phase phase_ = Phase::kOpen;
  bool is_broken_ = false;
  std::optional<OpenedModel> opened_;
  std::optional<Quantization> quantization_;
  std::unique_ptr<ModelWriter> writer_;  // of opened_->model
  int64_t all_bytes_ = 0;                // bytes of values
  int64_t written_bytes_ = 0, verified_bytes_ = 0;
  int64_t tensor_bytes_ = 0;            // part of written_bytes_: of the tensor in progress
  size_t next_ = 0;                     // next value of the present phase
  std::optional<OpenedModel> written_;  // the output, reopened to be verified
  std::optional<TensorReader> reader_;  // reads one of its values
  std::vector<std::byte> buffer_;
};

// Writes the model quantised; returns the report of tsr_model_quantize.
Result<std::string> quantize_model(std::shared_ptr<const SharedModel> model, const std::string& path,
                                   const Options& options);

}  // namespace tessera
