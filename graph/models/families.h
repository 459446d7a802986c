// The builders behind the table of model families: one declaration and one row (model_family.cc) a family.
#pragma once

#include <cstdint>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/layer_builder.h"
#include "graph/models/model_family.h"

namespace tessera {

Result<Graph> build_encoder(const ModelConfig& config);
Result<Graph> build_gpt2(const ModelConfig& config);
Result<Graph> build_llama(const ModelConfig& config);
Result<Graph> build_mlp(const ModelConfig& config);
Result<Graph> build_moe(const ModelConfig& config);

// ---- shared by the families that begin as Llama: its attention half and the ends of the model

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
