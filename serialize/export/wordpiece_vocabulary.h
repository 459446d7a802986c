// BERT's vocabulary between the forms of tokenizer.json and of GGUF files.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct WordPieceVocabulary {
  TokenizerData data;  // kWordPiece: words begin with ▁, what goes on in one has no mark
  bool lowercase = true, strip_accents = true;
};

// Whether a pipeline's model is WordPiece.
bool is_wordpiece_pipeline(const TokenizerData& pipeline);
// kUnsupported names the part that GGUF files have no word for.
Result<WordPieceVocabulary> wordpiece_vocabulary(const TokenizerData& pipeline);
// The tokens of a kWordPiece vocabulary as tokenizer.json has them: ## before what goes on in a word.
std::vector<std::string> wordpiece_tokens(const TokenizerData& data);

}  // namespace tessera
