// Scores of texts by an engine: what several texts begin with is computed and scored once, and nothing is padded to a window.
#pragma once

#include <optional>

#include "inference.h"
#include "scored_texts.h"

namespace cli {

struct EngineScoring {
  std::optional<int64_t> context;  // tokens of a text at most; absent: the library decides
  int32_t bos = -1;                // stands before every text; -1: none
};

// Nothing where a text is longer than the context, or begins with the BOS token that stands before it.
std::optional<TokenScores> score_by_engine(const Common& common, const Inference& inference,
                                           const Runtime& runtime, const Model& model,
                                           const TokenTexts& texts, const EngineScoring& scoring);

}  // namespace cli
