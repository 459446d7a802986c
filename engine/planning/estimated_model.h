// EstimatedModel: the training step of a described model, whole and with few blocks, as estimates of absent devices need it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/settings/trainer_settings.h"
#include "graph/base/result.h"
#include "graph/graph.h"
#include "parallel/planner/composed_plan.h"

namespace tessera {

// EstimateRequest: the options of an estimate, as the caller wrote them.
struct EstimateRequest {
  std::string description, cluster, parallel;  // the description written out
  int64_t batch = 8, memory_limit = 0;
  Options training;  // options of a trainer, and "seq", "lora" and "base"
};

class EstimatedModel {
 public:
  // kInvalidArgument, kUnsupported: options that a trainer does not have, or that belong to devices at hand.
  static Result<EstimatedModel> of(const EstimateRequest& request);

  // With few blocks (graph/transform/fewer_blocks.h).
  const ComposedModel& composed() const { return composed_; }
  int64_t tokens() const { return tokens_; }
  int64_t parameters() const { return parameters_; }  // of the whole model
  DType precision() const { return settings_.precision; }
  bool multiplies_8_bits() const { return settings_.step.fp8_matmuls; }
  // The step of the whole model, all symbols unbound.
  Result<Graph> whole_step() const;

 private:
  Result<Graph> step_of(Graph forward) const;
  Status choose_weights(const EstimateRequest& request);  // adapted_

  Graph forward_;
  TrainerSettings settings_;
  int64_t lora_ = 0;           // rank of the adapters; 0: none
  std::vector<std::string> adapted_;  // weights with adapters, or with slots for them, of the whole model
  std::optional<DType> base_;  // type that products' frozen weights are stored in
  ComposedModel composed_;
  int64_t tokens_ = 0, parameters_ = 0;
};

// Options of a trainer that estimates have too; others of the same request are read by the caller.
Options training_options(const Options& options);

}  // namespace tessera
