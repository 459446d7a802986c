// Planning without running: the plans that a trainer or generator with these options would have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/runtime.h"
#include "engine/data/dataset.h"
#include "engine/model/shared_model.h"
#include "engine/program/compile.h"

namespace tessera {

// Options are the trainer's, the generator's with mode = "generate", the engine's with "serve".
Result<std::shared_ptr<const PlanRecord>> plan_model(Runtime& runtime, const SharedModel& model,
                                                     const Options& options);

// Their option mode: "train" (default), "generate" or "serve".
Result<std::string> plan_mode(const Options& options);

// CompiledTraining: a trainer's program and what it was made from.
struct CompiledTraining {
  CompiledProgram compiled;
  TrainerSettings settings;
  std::shared_ptr<DeviceSet> devices;
  bool language_model = false;
};
// The program of a trainer with these options; `dataset` may be null.
Result<CompiledTraining> compiled_training(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                           const Options& options);

// The plan of a trainer with these options; `dataset` may be null.
Result<std::shared_ptr<const PlanRecord>> plan_training(Runtime& runtime, const SharedModel& model,
                                                        const Dataset* dataset, const Options& options);

struct TrainingBound {
  int64_t bytes = 0;  // lower bound (program/training_bound.h)
  int64_t limit = 0;  // per device; 0: none
  bool excludes_all_plans() const { return limit > 0 && bytes > limit; }
};
// The bound of a trainer with these options; `dataset` may be null.
Result<TrainingBound> bound_training(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                     const Options& options);

// Plans any graph, with options batch, symbols, parallel, pins, memory_limit.
Result<std::shared_ptr<const PlanRecord>> plan_graph(const DeviceSet& devices, const Graph& graph,
                                                     const Options& options);

// Reads a plan's text, from memory or a file, for its graph.
Result<std::shared_ptr<const PlanRecord>> parse_graph_plan(const DeviceSet& devices, const Graph& graph,
                                                           std::string_view text);
Result<std::shared_ptr<const PlanRecord>> load_graph_plan(const DeviceSet& devices, const Graph& graph,
                                                          const std::string& path);

// The predicted run as a trace; needs the option "trace" when the plan was made.
Result<std::string> predicted_trace_json(const PlanRecord& record);
std::string plan_text(const PlanRecord& record);
Status save_plan_text(const PlanRecord& record, const std::string& path);

}  // namespace tessera
