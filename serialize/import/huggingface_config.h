// Reads config.json of a Hugging Face folder as a ModelConfig.
// Absent keys have the defaults of the model_type's class.
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
  // Classifiers: class names, and metadata of the scores (serialize/class_head.h).
  std::vector<std::string> labels;
  std::string problem_type, class_activation;
  std::optional<int64_t> padding;  // pad_token_id, for decoder classifiers
  std::optional<FolderQuantization> quantization;
  bool is_base = false;              // a decoder's class is "…Model": without a head
  std::vector<std::string> ignored;  // name prefixes of ignored tensors
  std::string draft_beginning;       // name prefix of the draft block's tensors; empty: none is known
  // Keys with their values, read and unread, for the user.
  // Keys unknown to the class change no result there either.
  std::vector<std::pair<std::string, std::string>> used, unused;
};

// kUnsupported for a key with an unsupported value, kCorrupt for a wrong type or range.
Result<HuggingfaceConfig> read_huggingface_config(const Json& json);

}  // namespace tessera
