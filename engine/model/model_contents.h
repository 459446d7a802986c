// ModelContents: the contents of a model to write to a file; values are read when they are written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "graph/base/result.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "text/json.h"

namespace tessera {

struct ModelContents {
  Model model;                        // without values
  ReadParameter read;                 // one thread at a time
  std::shared_ptr<const void> holds;  // keeps the state of `read` alive
  std::vector<std::string> read_paths;  // files and folders that must not be replaced
  std::string resumed;                  // a checkpoint whose run's result may be replaced; "": none
};

// The contents written by tsr_model_save; parameters not drawn yet are drawn when read.
ModelContents contents_of(std::shared_ptr<const SharedModel> model);

// {"format", "bytes", "stored"} of a model's origin, a file or memory.
Json origin_json(const Model& model);
Json stored_json(const std::vector<StoredTensors>& stored);

// Writes a .tsr or GGUF file, by its name, with the options of tsr_model_save.
// A loaded model may replace its own .tsr file, with its present values.
Status save_shared_model(const std::shared_ptr<const SharedModel>& model, const std::string& path, const Options& options);
Status save_contents(const ModelContents& contents, const std::string& path, const Options& options);

// The contents as an opened file: each value is read whole at its first slice and released after its last.
OpenedModel opened_in_memory(const ModelContents& contents);

}  // namespace tessera
