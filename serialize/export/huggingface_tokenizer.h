// A model's tokenizer and its chat template as the files of a Hugging Face folder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "serialize/model.h"
#include "text/json.h"

namespace tessera {

struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> files;  // names and contents
  Json ids = Json::object();  // bos_token_id, eos_token_id, pad_token_id for the configurations; null: none
  std::vector<std::string> notes;  // parts not written, with reasons
};

// `wanted`: writes the tokenizer; its ids and the chat template are written in any case.
TokenizerFiles huggingface_tokenizer(const Model& model, bool wanted);

}  // namespace tessera
