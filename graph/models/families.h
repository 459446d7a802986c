// The builders behind the table of model families: one declaration and one row (model_family.cc) a family.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/model_family.h"

namespace tessera {

Result<Graph> build_encoder(const ModelConfig& config);
Result<Graph> build_gpt2(const ModelConfig& config);
Result<Graph> build_llama(const ModelConfig& config);
Result<Graph> build_mlp(const ModelConfig& config);
Result<Graph> build_moe(const ModelConfig& config);

}  // namespace tessera
