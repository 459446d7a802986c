// OpenedModel: a model's file after reading its contents; values are read slice by slice.
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
  std::vector<TensorSource> parameters;  // its values, by the graph's parameter names, unique
};

// The file to open for `path`: itself, or a safetensors
// file of a Hugging Face folder. Errors name the path.
Result<std::shared_ptr<const ByteSource>> open_model_file(const std::string& path);
// Opens a .tsr, GGUF or safetensors file, recognised by its first bytes. Checks
// structure and offsets of an untrusted file. A part of a split model opens all
// parts, and a safetensors file its folder; model.source then reads all files.
Result<OpenedModel> open_model(std::shared_ptr<const ByteSource> source);
Result<OpenedModel> open_tsr(std::shared_ptr<const ByteSource> source);
Result<OpenedModel> open_gguf(std::shared_ptr<const ByteSource> source);

// Counts and bytes by type, for ModelOrigin.
std::vector<StoredTensors> stored_tensors(std::span<const TensorRecord> records);

}  // namespace tessera
