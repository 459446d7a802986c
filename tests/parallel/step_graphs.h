// Whole training steps for tests, and their lowering under a named strategy.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/models/model_family.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "parallel/lowering/lower.h"
#include "parallel/strategy/strategy.h"
#include "tests/parallel/fake_catalog.h"

namespace tessera {

inline Result<Graph> forward_graph(std::string_view shorthand, bool tied = true) {
  TSR_ASSIGN_OR_RETURN(ModelConfig config, parse_shorthand(shorthand));
  config.flags["tied"] = tied;
  return build_model(config);
}

// `compute`: bf16 or f16 for mixed precision; `fp8`: also linear layers of blocks in 8 bits.
inline Result<Graph> training_step_of(Graph forward, double clip_norm = 0, DType compute = DType::kF32,
                                      bool fp8 = false) {
  TSR_RETURN_IF_ERROR(add_token_loss(forward));
  if (compute != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(forward, with_mixed_precision(forward, compute));
  }
  TrainingOptions options;
  options.clip_norm = clip_norm;
  options.fp8_matmuls = fp8;
  return make_training_step(forward, options);
}

inline Result<Graph> training_step(std::string_view shorthand, bool tied = true, double clip_norm = 0,
                                   DType compute = DType::kF32, bool fp8 = false) {
  TSR_ASSIGN_OR_RETURN(Graph forward, forward_graph(shorthand, tied));
  return training_step_of(std::move(forward), clip_norm, compute, fp8);
}

inline Result<Plan> plan_of(const Graph& step, std::string_view parallel, int64_t batch, int64_t tokens) {
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", tokens}};
  TSR_ASSIGN_OR_RETURN(const Graph bound, step.bind_partly(symbols));
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(parallel));
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(bound, pins.spec, batch));
  plan.symbols = symbols;
  return plan;
}

inline Result<Program> program_of(const Graph& step, std::string_view parallel, int64_t batch,
                                  int64_t tokens) {
  TSR_ASSIGN_OR_RETURN(const Plan plan, plan_of(step, parallel, batch, tokens));
  const EntrySpec entry{"train_step", &step, &plan};
  return lower(std::span(&entry, 1), FakeCatalog());
}

inline int64_t parameter_elements(const Graph& graph) {
  int64_t elements = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    elements += graph.type(id).shape.elements();
  return elements;
}

}  // namespace tessera
