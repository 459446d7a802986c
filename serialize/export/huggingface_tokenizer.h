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
  Json ids = Json::object();  // bos_token_id, eos_token_id, pad_token_id of the configurations; null for none
  std::vector<std::string> notes;  // what is not written, and why
};

// `wanted`: whether the tokenizer is to be written; its ids are, and so is the chat template.
TokenizerFiles huggingface_tokenizer(const Model& model, bool wanted);

}  // namespace tessera
