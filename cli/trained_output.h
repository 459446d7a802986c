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
  void check_model(const Model& model);  // throws where it could not be written as wanted
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

  std::string path_;
  bool merge_;
  Kind kind_ = Kind::kModel;
};

}  // namespace cli
