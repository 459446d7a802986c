// RunOutput: the result of a training run: a model file, a PEFT folder
// of adapters, or a model with merged adapters. Written in steps.
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
  // Checks known before a model is loaded.
  static Status check_path(const RunSettings& settings);
  // Refuses options that do not fit the model.
  static Result<RunOutput> create(const RunSettings& settings, std::shared_ptr<SharedModel> model);
  // Refuses a model that cannot be written, and paths that it is read from. A
  // resumed run may replace its own result, which `check_trained` verifies.
  Status check_files(const RunSettings& settings) const;
  Status check_trained(const std::shared_ptr<Trainer>& trainer) const;

  bool is_empty() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  const char* kind() const;  // "model", "adapters", "merged"

  // Begins to write the trainer's values; values of adapters move to the trainer's model. With several processes the first writes.
  Status begin(const std::shared_ptr<Trainer>& trainer);
  Result<double> step();  // share that is done; at 1 the result is in place
  void cancel();          // removes partial output
  const std::vector<std::string>& notes() const { return notes_; }  // messages of the writer

 private:
  enum class Kind { kModel, kPeft, kMerged };
  RunOutput(std::string path, Kind kind, std::shared_ptr<SharedModel> model)
      : path_(std::move(path)), kind_(kind), model_(std::move(model)) {}
  Result<std::unique_ptr<Conversion>> trained_model(const std::shared_ptr<Trainer>& trainer) const;
  Result<std::unique_ptr<Export>> adapters() const;
  Status check_written() const;
  Status begin_here();
  Result<double> step_here();

  std::string path_;  // "": no output
  Kind kind_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<Trainer> trainer_;     // while it is written
  std::shared_ptr<const void> lease_;  // lease of the trainer while its values are written
  std::unique_ptr<Conversion> conversion_;
  std::unique_ptr<Export> export_;
  std::vector<std::string> notes_;
};

}  // namespace tessera
