// A tokenizer.model with the side files that transformers saves with it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// The tokenizer that transformers' AutoTokenizer makes of the file: `config` is the merged tokenizer_config.json, whose
// tokenizer_class decides where a text gets its dummy prefix; `model_type` is config.json's. Added tokens get the ids that
// they name. BOS and EOS are put around texts where add_bos_token and add_eos_token say so. kUnsupported for classes that
// number pieces differently, kCorrupt for added tokens whose ids the vocabulary cannot have.
Result<TokenizerData> hf_sentencepiece_model(std::string_view file, const nlohmann::json& config,
                                             const std::string& model_type, std::vector<int32_t> end_ids);

}  // namespace tessera
