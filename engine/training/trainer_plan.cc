// The plan of a trainer, and in its checkpoints. Plans differ in their order of summation; a resumed training
// continues bit for bit with its original plan, whatever prices (threads, profiles) now suggest.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/program/compile.h"
#include "engine/training/trainer.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/lowering/lower.h"

namespace tessera {
namespace {

constexpr const char *kPlan = "plan", *kDevices = "plan_devices", *kAsked = "plan_asked";
// Longer plans are not recorded, since a checkpoint's index is limited.
constexpr size_t kMostRecordedBytes = size_t{16} << 20;

// "cpu:2 (cpu)"
std::string devices_of(const PlanRecord& record) {
  std::string kinds;
  for (const DeviceKind& kind : record.cluster.kinds) kinds += (kinds.empty() ? "" : ", ") + kind.name;
  return format("{} ({})", record.devices_text, kinds);
}

// The trainer's options about the plan; empty: none.
std::string asked_of(const ComputeSettings& compute) {
  std::string text = compute.parallel;
  for (const auto* pins : {&compute.pins.stored, &compute.pins.ops})
    for (const auto& [name, value] : *pins) text += format("; {}: {}", name, value);
  for (const auto* names : {&compute.pins.keep, &compute.pins.stages})
    for (const std::string& name : *names) text += "; " + name;
  return text;
}

std::string value_of(const CheckpointInfo& info, const char* key) {
  const auto found = info.values.find(key);
  return found == info.values.end() ? "" : found->second;
}

// The decisions alone.
std::string decisions_text(Plan plan, const Graph& graph) {
  plan.estimate = {};
  return print(plan, graph);
}

// The program of the ranks of all processes, for readers of the plan; null if it cannot be lowered here.
std::shared_ptr<const Program> program_of_all(const PlanRecord& record, const KernelCatalog& catalog) {
  std::vector<EntrySpec> specs;
  for (const PlannedEntry& entry : record.entries) specs.push_back({entry.name, entry.graph.get(), &entry.plan});
  Result<Program> whole = lower(specs, catalog);
  return whole.ok() ? std::make_shared<const Program>(std::move(*whole)) : nullptr;
}

}  // namespace

void Trainer::record_plan(CheckpointInfo& info) const {
  const PlanRecord& record = running_->record();
  std::string text = print(record.entries[0].plan, *record.entries[0].graph);
  if (text.size() > kMostRecordedBytes) return;
  info.values[kPlan] = std::move(text);
  info.values[kDevices] = devices_of(record);
  if (const std::string asked = asked_of(settings_.compute); !asked.empty()) info.values[kAsked] = asked;
}

void Trainer::forget_plan(std::map<std::string, std::string>& values) {
  for (const char* key : {kPlan, kDevices, kAsked}) values.erase(key);
}

Status Trainer::take_plan(const CheckpointInfo& found) {
  const std::string text = value_of(found, kPlan);
  if (text.empty() || settings_.evaluate_only) return {};
  const PlanRecord& own = running_->record();
  const PlannedEntry& step = own.entries[0];
  const std::string theirs = value_of(found, "strategy"), ours = step.plan.strategy;
  LogQueue& log = running_->prepared()->runtime->log();
  const auto keep = [&](const std::string& why) {
    log.add(2, format("resume: the checkpoint's training ran the plan '{}', this one runs '{}': {}. It goes on to rounding, "
                      "not bit for bit",
                      theirs, ours, why));
    return Status();
  };
  if (const std::string devices = devices_of(own); devices != value_of(found, kDevices))
    return keep(format("the devices are {}, and were {}", devices, value_of(found, kDevices)));
  const Result<Plan> recorded = parse_plan(text, *step.graph);
  if (recorded.ok() && decisions_text(*recorded, *step.graph) == decisions_text(step.plan, *step.graph)) return {};
  if (!settings_.compute.plan_file.empty()) return keep("option plan_file gives it");
  if (const std::string asked = asked_of(settings_.compute); !asked.empty() && asked != value_of(found, kAsked))
    return keep(format("option parallel or pins asks for {}", asked));
  if (!lent_.expired()) return keep("engines or generators read the trainer's weights in place");
  if (has_fed_) return keep("inputs were fed before");
  TrainerSettings settings = settings_;
  settings.compute.plan_text = text;
  Result<CompiledProgram> compiled = compile_training(*forward_, is_language_model_, settings,
                                                      running_->prepared()->devices);
  if (!compiled.ok()) {
    if (compiled.status().code() == StatusCode::kCancelled) return compiled.status();
    return keep(format("the checkpoint's does not work here ({})", compiled.status().message()));
  }
  const Status taken = run_program(running_->prepared()->runtime, running_->prepared()->devices, *std::move(compiled));
  if (taken.ok() || taken.code() == StatusCode::kCancelled) return taken;
  return keep(format("the checkpoint's does not work here ({})", taken.message()));
}

// The previous program is freed last.
Status Trainer::run_program(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceSet> devices,
                            CompiledProgram compiled) {
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(std::move(runtime), std::move(devices), std::move(compiled)));
  const SessionOptions session{.measure_memory = settings_.measure_memory,
                               .trace = settings_.compute.trace,
                               .file_folder = settings_.offload_folder,
                               .host_memory_limit = settings_.compute.host_memory_limit,
                               .watchdog_s = settings_.watchdog_s,
                               .side = CoreSide::kTraining,
                               .before_update = [this] { begin_update(); }};
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<ProgramRunner> made,
                       ProgramRunner::create(std::move(prepared), session, model_, parameter_seed_));
  {
    const std::lock_guard lock(cancel_mutex_);
    std::swap(running_, made);
  }
  const Graph& step = *running_->record().entries.front().graph;
  index_inputs_ = index_inputs(step);
  trained_.clear(), frozen_.clear(), gradient_states_.clear();
  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
    if (step.tensor(id).trainable) trained_.insert(step.tensor(id).name);
  TSR_RETURN_IF_ERROR(find_base(*model_));
  find_gradient_states();
  runs_ = allocations_after_first_ = allocations_at_first_ = allocations_elsewhere_ = 0;
  communication_elsewhere_.clear(), memory_.clear();
  std::vector<std::string> entries;
  for (const PlannedEntry& entry : running_->record().entries) entries.push_back(entry.name);
  if (dataset_ || !settings_.losses.empty())
    TSR_RETURN_IF_ERROR(feed_defaults(dataset_ ? dataset_->row_tokens() : settings_.seq, entries));
  return {};
}

std::shared_ptr<const PlanRecord> Trainer::plan() const {
  const std::shared_ptr<const LoadedProgram>& prepared = running_->prepared();
  auto record = std::make_shared<PlanRecord>(*prepared->record);
  const Program& program = prepared->executable->program();
  record->program = {prepared, &program};
  if (!program.rank_set().is_whole()) record->program = program_of_all(*record, prepared->devices->catalog());
  return record;
}

}  // namespace tessera
