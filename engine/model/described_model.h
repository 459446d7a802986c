// DescribedModel: the description of a model, from a
// shorthand or a model file. Weights are not read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"

namespace tessera {

struct DescribedModel {
  std::string name;         // as the caller wrote it
  std::string description;  // a shorthand of a model family
  // Storage type of most block matrices in the file, if narrower than f32.
  std::optional<DType> stored;
};

// `text`: a shorthand, or the path of a .tsr or GGUF file or a Hugging Face folder. kNotFound,
// kInvalidArgument: neither. kUnsupported: a file without a description, of a custom graph, or with adapters.
Result<DescribedModel> describe_model(std::string_view text);

}  // namespace tessera
