// OpenedModel: a model's file whose contents are known, and whose values are read one slice at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serialize/model.h"
#include "serialize/tensor_record.h"
#include "serialize/tensor_source.h"

namespace tessera {

struct OpenedModel {
  Model model;                           // without values
  std::vector<TensorSource> parameters;  // its values; names of the graph's parameters, each at most once
};

// The file by which a model is opened: `path` itself, or one of the safetensors files of a Hugging Face folder. Errors
// name the path.
Result<std::shared_ptr<const ByteSource>> open_model_file(const std::string& path);
// A .tsr, GGUF or safetensors file, told by its first bytes. Checks structure and offsets of an untrusted file. A part
// of a split model opens all parts, and a safetensors file the configuration, which are in its folder: model.source
// then reads them all.
Result<OpenedModel> open_model(std::shared_ptr<const ByteSource> source);
Result<OpenedModel> open_tsr(std::shared_ptr<const ByteSource> source);
Result<OpenedModel> open_gguf(std::shared_ptr<const ByteSource> source);

// The model with its values: in place where they can be, else read.
Result<Model> read_values(OpenedModel opened);

// Counts and bytes by type, for ModelOrigin.
std::vector<StoredTensors> stored_tensors(std::span<const TensorRecord> records);

}  // namespace tessera
