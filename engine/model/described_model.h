// DescribedModel: what an estimate reads of a model: its description, written out or in the model's own file. No value of a
// weight is read.
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
  // Of a file: the type in which it stores most of the matrices of its blocks, where that is narrower than f32.
  std::optional<DType> stored;
};

// `text`: a shorthand, or the path of a .tsr or GGUF file or a Hugging Face folder. kNotFound, kInvalidArgument: neither;
// kUnsupported: a file without a description, of a graph of the caller's own, or with adapters.
Result<DescribedModel> describe_model(std::string_view text);

}  // namespace tessera
