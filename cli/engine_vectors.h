// Vectors of texts by an engine, which pads nothing to a length; and what texts begin with alike is computed once where the
// last token has the vector.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inference.h"

namespace cli {

struct VectorForm {
  std::optional<int64_t> seq;          // tokens of a text at most
  std::optional<std::string> pooling;  // absent, or auto: as the model's file says
  std::optional<bool> normalize;       // likewise
};

struct TextVectors {
  std::vector<float> values;  // [texts, width]
  size_t width = 0;
  Json report;  // as an embedder's
};

// Nothing for a model that no engine serves, and where a text is longer than `seq` or what the model's file says.
std::optional<TextVectors> embed_by_engine(const Common& common, const Inference& inference,
                                           const Runtime& runtime, const Model& model,
                                           const std::vector<std::string_view>& texts,
                                           const VectorForm& form);

}  // namespace cli
