// TrainedOutput: the result of a training at --out: a model's file, PEFT's folder of adapters, or a merged model.
#pragma once

#include <string>

#include "command.h"

namespace cli {

class TrainedOutput {
 public:
  // `path` empty: nothing is written.
  TrainedOutput(std::string path, bool merge) : path_(std::move(path)), merge_(merge) {}

  void check_path() const;               // before the model is loaded
  // Throws where the model could not be written as wanted, or over a file that it is read from. A run that is resumed may
  // replace its own result: check_resumed looks at that, once the trainer is there.
  void check_model(const Model& model, bool is_resumed);
  void check_resumed(const Trainer& trainer, const Model& model) const;
  bool is_empty() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  const char* noun() const;  // "the model", "the adapters", "the merged model"
  bool is_whole_model() const { return kind_ == Kind::kModel; }
  void write(const Common& common, const Trainer& trainer, const Model& model) const;

 private:
  enum class Kind { kModel, kPeft, kMerged };
  bool is_gguf() const;
  bool is_file() const { return merge_ || path_.ends_with(".tsr") || is_gguf(); }
  Export make_export(const Model& model) const;
  Conversion make_conversion(const Trainer& trainer, const Model& model) const;
  void check_write(const Model& model) const;

  std::string path_;
  bool merge_;
  Kind kind_ = Kind::kModel;
};

}  // namespace cli
