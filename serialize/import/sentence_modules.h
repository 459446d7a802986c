// The files that sentence-transformers adds to a model's folder: how the vectors of its tokens become one of a text.
#pragma once

#include <map>
#include <string>

#include "graph/base/result.h"

namespace tessera {

// Metadata of embeddings: how tokens' vectors are pooled ("mean", "cls", "last"; of GGUF files also "none" and "rank",
// which make no vector of a text), whether the result is scaled to length 1 ("1"), the tokens that are read of a text,
// and the text of config_sentence_transformers.json (prompts, which the caller puts before texts).
inline constexpr const char* kPoolingKey = "pooling";
inline constexpr const char* kNormalizeKey = "normalize";
inline constexpr const char* kEmbeddingTokensKey = "embedding_tokens";
inline constexpr const char* kSentenceSettingsKey = "sentence_settings";

// Reads modules.json, the configuration of its pooling module and sentence_bert_config.json, where they are, into
// `metadata`. `channels`: of the model's vectors. kUnsupported names a module or a kind of pooling that is not known.
Status read_sentence_modules(const std::string& folder, int64_t channels,
                             std::map<std::string, std::string>& metadata);

}  // namespace tessera
