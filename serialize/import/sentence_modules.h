// Files that sentence-transformers adds to a model's folder: the pooling of token vectors, and Dense modules behind it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/dense_modules.h"

namespace tessera {

// Metadata of embeddings: pooling ("mean", "cls", "last"; from GGUF also "none" and
// "rank", without text vectors), normalization to length 1 ("1"), the longest text,
// and config_sentence_transformers.json (prompts, which the caller prepends).
inline constexpr const char* kPoolingKey = "pooling";
inline constexpr const char* kNormalizeKey = "normalize";
inline constexpr const char* kEmbeddingTokensKey = "embedding_tokens";
inline constexpr const char* kSentenceSettingsKey = "sentence_settings";

// Reads modules.json, its pooling configuration and sentence_bert_config.json, if present, into
// `metadata`. `channels`: width of the model's vectors. kUnsupported names an unknown module or pooling, or a module whose place is
// not supported. Returns the Dense modules, in order.
Result<std::vector<DenseModule>> read_sentence_modules(const std::string& folder, int64_t channels,
                                                       std::map<std::string, std::string>& metadata);

}  // namespace tessera
