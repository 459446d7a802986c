// The config.json of encoders (BERT and its relatives) as a ModelConfig.
#pragma once

#include <string_view>

namespace tessera {

// Whether read_encoder (huggingface_classes.h) reads it. That function sets the family, its sizes and, where
// `architectures` says so, its head and the labels of classes; whether a model without a head has a pooler its tensors
// tell.
bool is_huggingface_encoder(std::string_view model_type);

}  // namespace tessera
