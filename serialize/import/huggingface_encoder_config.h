// Reads config.json of encoders (BERT and its relatives) as a ModelConfig.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serialize/import/huggingface_config.h"
#include "serialize/import/json_fields.h"

namespace tessera {

bool is_huggingface_encoder(std::string_view model_type);
std::vector<std::string> huggingface_encoders();  // their types

// Sets family, sizes and, from `architectures`, head and class labels; a pooler without a head is recognised by its tensors.
void read_encoder(JsonFields& fields, HuggingfaceConfig& out);

}  // namespace tessera
