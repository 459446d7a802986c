// The config.json of a Hugging Face folder as a ModelConfig. Keys that are absent have the defaults of their
// model_type's class.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "serialize/import/quantized_folder.h"
#include "serialize/import/rope_scaling.h"
#include "text/json.h"

namespace tessera {

struct HuggingfaceConfig {
  std::string model_type;
  ModelConfig config;
  std::optional<RopeScaling> scaling;
  std::vector<int32_t> end_ids;  // eos_token_id: one or several
  // Of models that tell classes: their names, and what is given of how their logits are read (serialize/class_head.h).
  std::vector<std::string> labels;
  std::string problem_type, class_activation;
  std::optional<int64_t> padding;  // pad_token_id, of decoders that tell classes
  std::optional<FolderQuantization> quantization;
  std::vector<std::string> ignored;  // beginnings of names of tensors that the model has no use for
  // Keys that were read and keys that were not, with their values, for people. What its class does not know changes
  // no result there either.
  std::vector<std::pair<std::string, std::string>> used, unused;
};

// kUnsupported names a key whose value asks for what is not there, kCorrupt one of a wrong type or range.
Result<HuggingfaceConfig> read_huggingface_config(const Json& json);

}  // namespace tessera
