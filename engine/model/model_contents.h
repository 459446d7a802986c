// ModelContents: what a file of a model in memory holds, whose values are read when they are written.
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
  ReadParameter read;                 // of one thread at a time
  std::shared_ptr<const void> holds;  // keeps what `read` uses
  std::vector<std::string> read_paths;  // files and folders that must not be replaced
  std::string resumed;                  // the checkpoint whose run's result may be; "": none
};

// The contents of the file that tsr_model_save writes; parameters that were not drawn yet are drawn when they are read.
ModelContents contents_of(std::shared_ptr<const SharedModel> model);

// {"format", "bytes", "stored"} of where a model comes from: a file, or memory.
Json origin_json(const Model& model);
Json stored_json(const std::vector<StoredTensors>& stored);

// Writes a .tsr or GGUF file, as its name says, with the options of tsr_model_save. A loaded model may be saved over its own .tsr
// file, with the values that its owner wrote into it.
Status save_shared_model(const std::shared_ptr<const SharedModel>& model, const std::string& path, const Options& options);
Status save_contents(const ModelContents& contents, const std::string& path, const Options& options);

// The same as a file that was opened: every value is read whole at its first slice, and given up at its end.
OpenedModel opened_in_memory(const ModelContents& contents);

}  // namespace tessera
