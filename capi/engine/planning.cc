#include "capi/engine/planning.h"

#include <algorithm>
#include <span>

#include "capi/engine/trace_json.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

Result<std::shared_ptr<const PlanRecord>> plan_model(Runtime& runtime, const SharedModel& model,
                                                     const Options& options) {
  Options rest = options;
  std::string mode = "train";
  if (const auto found = options.find("mode"); found != options.end()) {
    OptionReader reader(options, "plan");
    mode = reader.choice("mode", mode, {"train", "generate"});
    // The others are for the next reader, which also says what is unknown.
    for (const auto& [key, value] : options) reader.accept({key});
    TSR_RETURN_IF_ERROR(reader.finish());
    rest.erase("mode");
  }
  const Graph forward = model.graph();
  if (mode == "generate") {
    TSR_ASSIGN_OR_RETURN(GeneratorSettings settings, read_generator_settings(rest));
    TSR_RETURN_IF_ERROR(settle_context(settings, model.context_length()));
    TSR_ASSIGN_OR_RETURN(const auto devices, runtime.open_devices(settings.compute.devices, settings.compute.profile));
    TSR_ASSIGN_OR_RETURN(Compiled compiled, compile_generation(forward, settings, *devices));
    return compiled.record;
  }
  const bool language_model = !forward.find_output("loss");
  if (language_model && rest.find("seq") == rest.end()) {
    constexpr int64_t kDatasetSeq = 128;  // the dataset's default
    const int64_t longest = model.context_length();
    rest.emplace("seq", longest > 0 ? std::min(longest, kDatasetSeq) : kDatasetSeq);
  }
  TSR_ASSIGN_OR_RETURN(const TrainerSettings settings, read_trainer_settings(rest, 0));
  TSR_ASSIGN_OR_RETURN(const auto devices, runtime.open_devices(settings.compute.devices, settings.compute.profile));
  TSR_ASSIGN_OR_RETURN(Compiled compiled, compile_training(forward, language_model, settings, *devices));
  return compiled.record;
}

Result<std::shared_ptr<const PlanRecord>> plan_graph(const DeviceSet& devices, const Graph& graph,
                                                     const Options& options) {
  OptionReader reader(options, "plan");
  PlanOptions plan;
  plan.global_batch = reader.i64("batch", 1, 1, 1 << 24);
  plan.parallel = reader.text("parallel");
  plan.memory_limit = reader.bytes("memory_limit", 0);
  const std::string symbols = reader.text("symbols");
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(plan.symbols, parse_symbol_values(symbols));
  TSR_ASSIGN_OR_RETURN(Compiled compiled, compile_graph(graph, plan, devices));
  return compiled.record;
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
