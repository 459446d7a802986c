// Reads tokenizer.model with transformers' side files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// The tokenizer of transformers' AutoTokenizer. `config`: the merged tokenizer_config.json,
// whose tokenizer_class determines the dummy prefix; `model_type`: config.json's. Added
// tokens keep their ids. BOS and EOS follow add_bos_token and add_eos_token. kUnsupported
// for classes with other ids, kCorrupt for impossible ids of added tokens.
Result<TokenizerData> hf_sentencepiece_model(std::string_view file, const nlohmann::json& config,
                                             const std::string& model_type, std::vector<int32_t> end_ids);

}  // namespace tessera
