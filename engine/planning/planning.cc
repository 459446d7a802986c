#include "engine/planning/planning.h"

#include <algorithm>
#include <span>

#include "engine/base/text_file.h"
#include "engine/model/adapters.h"
#include "engine/planning/serving_plan.h"
#include "engine/program/entry_plans.h"
#include "engine/program/explain.h"
#include "engine/program/plan_origin.h"
#include "engine/program/report.h"
#include "engine/program/training_bound.h"
#include "engine/serving/scheduler/single_row.h"
#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "serialize/atomic_file.h"
#include "serialize/plan_pins_json.h"

namespace tessera {
namespace {

std::shared_ptr<const PlanRecord> with_program(CompiledProgram compiled) {
  auto record = std::make_shared<PlanRecord>(*compiled.record);
  record->program = std::make_shared<const Program>(std::move(compiled.program));
  return record;
}

// All but the program.
Result<CompiledTraining> training_of(Runtime& runtime, const SharedModel& model, const Dataset* dataset, Options options) {
  const Graph forward = model.graph();
  CompiledTraining made;
  made.language_model = dataset != nullptr || !forward.find_output("loss");
  if (dataset == nullptr && made.language_model && options.find("seq") == options.end()) {
    constexpr int64_t kDatasetSeq = 128;  // the dataset's default
    const int64_t longest = model.context_length();
    options.emplace("seq", longest > 0 ? std::min(longest, kDatasetSeq) : kDatasetSeq);
  }
  TSR_ASSIGN_OR_RETURN(made.settings, read_trainer_settings(options, dataset ? dataset->seq() : 0));
  if (made.settings.adapters > 0) {
    TSR_ASSIGN_OR_RETURN(made.settings.adapter_weights, adapted_weights(model, made.settings.adapter_pattern));
  }
  if (dataset) {
    made.settings.segments = segments_of(dataset->layout());
    made.settings.has_weights = dataset->has_weights();
  }
  TSR_ASSIGN_OR_RETURN(made.devices,
                       runtime.open_devices(made.settings.compute.devices, made.settings.compute.profile));
  return made;
}

}  // namespace

Result<CompiledTraining> compiled_training(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                           const Options& options) {
  TSR_RETURN_IF_ERROR(runtime.check_alone("a plan"));
  TSR_ASSIGN_OR_RETURN(CompiledTraining made, training_of(runtime, model, dataset, options));
  TSR_ASSIGN_OR_RETURN(made.compiled,
                       compile_training(model.graph(), made.language_model, made.settings, made.devices));
  return made;
}

Result<std::string> plan_mode(const Options& options) {
  OptionReader reader(options, "plan");
  std::string mode = reader.choice("mode", "train", {"train", "generate", "serve"});
  // Other keys are for the next reader, which also refuses unknown ones.
  for (const auto& [key, value] : options) reader.accept({key});
  TSR_RETURN_IF_ERROR(reader.finish());
  return mode;
}

Result<std::shared_ptr<const PlanRecord>> plan_model(Runtime& runtime, const SharedModel& model,
                                                     const Options& options) {
  TSR_ASSIGN_OR_RETURN(const std::string mode, plan_mode(options));
  Options rest = options;
  rest.erase("mode");
  const Graph forward = model.graph();
  if (mode == "serve") {
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, plan_serving(runtime, model, rest));
    return with_program(std::move(compiled));
  }
  if (mode == "generate") {
    TSR_ASSIGN_OR_RETURN(GeneratorSettings settings, read_generator_settings(rest));
    TSR_RETURN_IF_ERROR(finalize_context(settings, model.context_length()));
    TSR_ASSIGN_OR_RETURN(const auto devices,
                         runtime.open_devices(settings.compute.devices, settings.compute.profile));
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                         compile_serving(forward, single_row_settings(settings, forward, *devices), devices));
    return with_program(std::move(compiled));
  }
  TSR_ASSIGN_OR_RETURN(CompiledTraining it, compiled_training(runtime, model, nullptr, rest));
  auto record = std::make_shared<PlanRecord>(*it.compiled.record);
  std::vector<std::string> frozen =
      frozen_plan_reasons(forward, it.language_model, it.settings, it.devices, *record);
  record->reasons.insert(record->reasons.begin(), frozen.begin(), frozen.end());
  record->program = std::make_shared<const Program>(std::move(it.compiled.program));
  return std::shared_ptr<const PlanRecord>(std::move(record));
}

Result<std::shared_ptr<const PlanRecord>> plan_training(Runtime& runtime, const SharedModel& model,
                                                        const Dataset* dataset, const Options& options) {
  TSR_ASSIGN_OR_RETURN(CompiledTraining it, compiled_training(runtime, model, dataset, options));
  return with_program(std::move(it.compiled));
}

Result<TrainingBound> bound_training(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                     const Options& options) {
  TSR_ASSIGN_OR_RETURN(const CompiledTraining it, training_of(runtime, model, dataset, options));
  return TrainingBound{least_training_bytes(model.graph(), it.language_model, it.settings, *it.devices),
                       limit_of(it.devices->cluster(), it.settings.compute.memory_limit)};
}

Result<std::shared_ptr<const PlanRecord>> plan_graph(const DeviceSet& devices, const Graph& graph,
                                                     const Options& options) {
  OptionReader reader(options, "plan");
  PlanOptions plan;
  plan.global_batch = reader.i64("batch", 1, 1, 1 << 24);
  plan.parallel = reader.text("parallel");
  const std::string pins = reader.text("pins");
  plan.memory_limit = reader.bytes("memory_limit", 0);
  const std::string symbols = reader.text("symbols");
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(plan.symbols, parse_symbol_values(symbols));
  if (!pins.empty()) {
    TSR_ASSIGN_OR_RETURN(plan.pins, plan_pins_from_json(pins));
  }
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_graph(graph, plan, devices));
  return with_program(std::move(compiled));
}

Result<std::shared_ptr<const PlanRecord>> parse_graph_plan(const DeviceSet& devices, const Graph& given,
                                                           std::string_view text) {
  // Plans use the canonical order of graphs; files of earlier versions the given order.
  TSR_ASSIGN_OR_RETURN(const Graph ordered, in_canonical_order(given));
  if (!is_plan_of(text, given)) TSR_RETURN_IF_ERROR(check_plan_graph(text, ordered));
  const Result<Plan> of_ordered = parse_plan(text, ordered);
  const bool fits = of_ordered.ok() && of_ordered->graph_fingerprint == ordered.fingerprint();
  TSR_ASSIGN_OR_RETURN(Plan plan, parse_plan(text, fits ? ordered : given));
  TSR_ASSIGN_OR_RETURN(Graph graph, graph_of_plan(plan, given));
  std::vector<PlannedEntry> entries = {{"main", std::make_shared<const Graph>(std::move(graph)), std::move(plan)}};
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_entries(std::move(entries), devices));
  return with_program(std::move(compiled));
}

Result<std::shared_ptr<const PlanRecord>> load_graph_plan(const DeviceSet& devices, const Graph& graph,
                                                          const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "plan", kMostPlanBytes));
  Result<std::shared_ptr<const PlanRecord>> record = parse_graph_plan(devices, graph, text);
  if (!record.ok()) return record.status().with_context(format("plan '{}'", path));
  return record;
}

Result<std::string> predicted_trace_json(const PlanRecord& record) {
  if (record.predicted_trace.empty())
    return Status(StatusCode::kFailedPrecondition, "the plan was made without a trace: set its option trace");
  std::vector<std::string> devices;
  for (const PlanRecord::Device& device : record.devices) devices.push_back(device.name);
  return trace_json(record.predicted_trace, devices);
}

std::string plan_text(const PlanRecord& record) {
  return print(record.entries[0].plan, *record.entries[0].graph);
}

Status save_plan_text(const PlanRecord& record, const std::string& path) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const std::string text = plan_text(record);
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace tessera
