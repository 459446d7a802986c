// Classes of a ...ForSequenceClassification: labels, and the function from logits to scores.
#pragma once

#include "serialize/import/huggingface_config.h"
#include "serialize/import/json_fields.h"

namespace tessera {

// Reads id2label, num_labels, problem_type, and the activation that sentence-transformers' cross encoders note
// (sentence_transformers.activation_fn, sbert_ce_default_activation_function). Sets size N.
void read_labels(JsonFields& fields, HuggingfaceConfig& out);

}  // namespace tessera
