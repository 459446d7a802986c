// Reads config.json of encoders (BERT and its relatives) as a ModelConfig.
#pragma once

#include <string_view>

namespace tessera {

// Whether read_encoder (huggingface_classes.h) reads this type.
// It sets family, sizes and, from `architectures`, head and class
// labels; a pooler without a head is recognised by its tensors.
bool is_huggingface_encoder(std::string_view model_type);

}  // namespace tessera
