// Shared by the families that begin as Llama: its attention half and the ends of the model.
#pragma once

#include <cstdint>
#include <string>

#include "graph/models/layer_builder.h"

namespace tessera {

struct LlamaSizes {
  int64_t L, C, H, KV, D, F, V, T;
  double norm_eps, rope_theta;
  bool tied, rope_half;
};

LlamaSizes read_llama_sizes(ConfigReader& config);

// x + attention(rms_norm(x)), in scope "<block>.attention".
TensorId llama_attention(LayerBuilder& b, const LlamaSizes& m, const std::string& block, TensorId x,
                         TensorId positions);
// rms_norm with the weight `name`.
TensorId llama_norm(LayerBuilder& b, const LlamaSizes& m, const std::string& name, TensorId x);
// Final norm and projection onto the vocabulary: output "logits".
void llama_output(LayerBuilder& b, const LlamaSizes& m, TensorId x, TensorId table);

}  // namespace tessera
