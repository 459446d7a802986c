// RunOutput: the result of a training run: a model's file, PEFT's folder of adapters, or a file of the model with the adapters in
// its weights. It is written step by step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/model/conversion.h"
#include "engine/model/export.h"
#include "engine/settings/run_settings.h"
#include "engine/training/trainer.h"

namespace tessera {

class RunOutput {
 public:
  // What can be known before a model is loaded.
  static Status check_path(const RunSettings& settings);
  // Fails where `model` could not be written, or over a file that it is read from. A run that is resumed may replace its own
  // result: `check_trained` looks at that.
  static Result<RunOutput> create(const RunSettings& settings, std::shared_ptr<SharedModel> model);
  Status check_trained(const std::shared_ptr<Trainer>& trainer) const;

  bool is_empty() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  const char* kind() const;  // "model", "adapters", "merged"

  // Begins to write the trainer's values; of adapters they are in the trainer's model from here on.
  Status begin(const std::shared_ptr<Trainer>& trainer);
  Result<double> step();  // the share that is done; at 1 the result is in its place
  void cancel();          // removes what was written
  const std::vector<std::string>& notes() const { return notes_; }  // of the writer, for people

 private:
  enum class Kind { kModel, kPeft, kMerged };
  RunOutput(std::string path, Kind kind, std::shared_ptr<SharedModel> model)
      : path_(std::move(path)), kind_(kind), model_(std::move(model)) {}
  Result<std::unique_ptr<Conversion>> trained_model(const std::shared_ptr<Trainer>& trainer) const;
  Result<std::unique_ptr<Export>> adapters() const;
  Status check_written() const;

  std::string path_;  // "": nothing is written
  Kind kind_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<const void> lease_;  // of the trainer, whose values are being written
  std::unique_ptr<Conversion> conversion_;
  std::unique_ptr<Export> export_;
  std::vector<std::string> notes_;
};

}  // namespace tessera
