#include "engine/planning/serving_plan.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sampling/sampling_settings.h"
#include "engine/serving/pages/fitted_pages.h"
#include "engine/serving/replicas/replica_settings.h"
#include "engine/serving/scheduler/draft_model.h"
#include "engine/serving/texts/engine_settings.h"
#include "runtime/arranged_weights.h"

namespace tessera {
namespace {

// ReplicaPlan: one replica's program, and what its memory depends on.
struct ReplicaPlan {
  Graph forward;
  std::shared_ptr<DeviceSet> devices;
  ServingSettings given;     // finalized, with the pages asked for
  ServingSettings settings;  // with the pages chosen
  ChosenPages chosen;
  CompiledProgram compiled;
  std::vector<PageBytes> page;       // by device
  std::vector<int64_t> arena_bytes;  // by device, with the pages of `settings`
  int64_t draft_bytes = 0;
};

// Engines load their draft first; its arena comes out of the limit.
Status plan_draft(ReplicaPlan& replica, const SharedModel& model) {
  ServingSettings& settings = replica.given;
  if (settings.draft == nullptr && !settings.drafts_by_block) return {};
  const auto plan = [&]() -> Status {
    if (settings.draft != nullptr) TSR_RETURN_IF_ERROR(check_draft_vocabulary(model, *settings.draft));
    const SharedModel& drafting = settings.drafts_by_block ? model : *settings.draft;
    TSR_ASSIGN_OR_RETURN(const CompiledProgram draft, DraftModel::compile(drafting, settings, replica.devices));
    replica.draft_bytes = arena_bytes_of(draft.program);
    return take_draft_bytes(replica.draft_bytes, settings.compute.memory_limit);
  };
  return plan().with_context(name_of_draft(settings));
}

// Compiles the replica's program. Bytes of pages that do not fit are added to those of the smallest program.
Status compile_replica(ReplicaPlan& replica) {
  replica.settings = replica.given;
  Result<CompiledProgram> fitting =
      compile_fitting(replica.forward, replica.settings, replica.chosen, replica.devices);
  if (!fitting.ok() && fitting.status().code() != StatusCode::kOutOfMemory) return fitting.status();
  const bool fits = fitting.ok();
  if (fits) {
    replica.compiled = std::move(*fitting);
  } else {
    TSR_ASSIGN_OR_RETURN(replica.compiled, compile_smallest(replica.forward, replica.settings, replica.chosen, replica.devices));
  }
  const ServingSettings compiled = replica.settings;
  replica.page = bytes_of_pages(replica.compiled, compiled);
  if (!fits && !replica.chosen.full) replica.settings = replica.given;
  for (size_t i = 0; i < replica.page.size(); ++i)
    replica.arena_bytes.push_back(replica.compiled.program.ranks[i].arena_bytes +
                                  replica.page[i].full * (replica.settings.pages - compiled.pages) +
                                  replica.page[i].window * (replica.settings.window_pages - compiled.window_pages));
  return {};
}

// By device: bytes of one more sequence, without pages. Sequences are doubled to measure them.
Result<std::vector<double>> measure_sequence_bytes(const ReplicaPlan& replica, int64_t replicas) {
  const int64_t rows = replica.settings.rows, more = std::min(rows, kMostSequences / replicas - rows);
  std::vector<double> bytes(replica.page.size(), 0);
  if (more <= 0) return bytes;
  std::vector<int64_t> before;
  for (const int64_t count : {rows, rows + more}) {
    ServingSettings settings = replica.given;
    settings.rows = count;
    TSR_ASSIGN_OR_RETURN(const CompiledProgram compiled,
                         compile_smallest(replica.forward, settings, replica.chosen, replica.devices));
    const std::vector<PageBytes> page = bytes_of_pages(compiled, settings);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int64_t fixed = compiled.program.ranks[i].arena_bytes - page[i].full * settings.pages -
                            page[i].window * settings.window_pages;
      if (count == rows)
        before.push_back(fixed);
      else
        bytes[i] = static_cast<double>(fixed - before[i]) / static_cast<double>(more);
    }
  }
  return bytes;
}

// Sequences of whole contexts that each device has room for; the pages of windows as engines choose them.
Result<int64_t> count_fitting_sequences(const ReplicaPlan& replica, int64_t replicas, std::span<const int64_t> limits) {
  const ServingSettings& settings = replica.settings;
  TSR_ASSIGN_OR_RETURN(const std::vector<double> of_sequence, measure_sequence_bytes(replica, replicas));
  const bool are_windows_given = !replica.chosen.windows;
  const int64_t window_pages = are_windows_given ? 0 : window_pages_of_sequence(settings);
  const int64_t shared_window_pages =
      are_windows_given ? settings.window_pages : window_pages_of_step(settings);
  double fitting = static_cast<double>(kMostSequences / replicas);
  for (size_t i = 0; i < replica.page.size(); ++i) {
    const PageBytes& page = replica.page[i];
    const double of_context =
        static_cast<double>(pages_of(settings, settings.context) * page.full + window_pages * page.window) + of_sequence[i];
    const int64_t without_pages =
        replica.arena_bytes[i] - settings.pages * page.full - settings.window_pages * page.window;
    const double fixed = static_cast<double>(without_pages + shared_window_pages * page.window + replica.draft_bytes) -
                         static_cast<double>(settings.rows) * of_sequence[i];
    if (of_context > 0) fitting = std::min(fitting, (static_cast<double>(limits[i]) - fixed) / of_context);
  }
  return static_cast<int64_t>(std::max(0.0, fitting));
}

void add_weights(const ReplicaPlan& replica, ServingPlan& plan) {
  Program program = replica.compiled.program;
  if (replica.settings.inference.repack) take_arranged_variants(program, *replica.devices);
  for (const RankProgram& rank : program.ranks) {
    const std::vector<ArrangedOperand> arranged = find_arranged(rank);
    for (size_t slot = 0; slot < rank.slots.size(); ++slot) {
      if (rank.slots[slot].kind != SlotKind::kParameter) continue;
      plan.weight_bytes += rank.slots[slot].bytes;
      if (arranged[slot].kernel != nullptr) plan.arranged_weight_bytes += rank.slots[slot].bytes;
    }
  }
}

// Limits of a replica's devices: the option's, else what each has.
std::vector<int64_t> limits_of(const DeviceSet& devices, int64_t memory_limit) {
  const Cluster cluster = devices.cluster();
  std::vector<int64_t> limits;
  for (const int32_t kind : cluster.devices)
    limits.push_back(memory_limit > 0 ? memory_limit : cluster.kinds[static_cast<size_t>(kind)].memory_bytes);
  return limits;
}

void add_devices(const ReplicaPlan& replica, const DeviceSet& devices, std::span<const int64_t> limits, ServingPlan& plan) {
  for (size_t i = 0; i < replica.page.size(); ++i)
    plan.devices.push_back({.name = devices.device_name(static_cast<int32_t>(i)),
                            .arena_bytes = replica.arena_bytes[i],
                            .draft_bytes = replica.draft_bytes,
                            .limit_bytes = limits[i]});
}

ServingPlan replica_plan(const ReplicaPlan& replica, int64_t replicas) {
  const ServingSettings& settings = replica.settings;
  ServingPlan plan;
  plan.replicas = replicas;
  plan.context = settings.context;
  plan.sequences = replicas * settings.rows;
  plan.page_tokens = settings.page_size;
  plan.cache_tokens = replicas * settings.pages * settings.page_size;
  plan.window = settings.window_pages > 0 ? settings.window : 0;
  plan.window_cache_tokens = replicas * settings.window_pages * settings.page_size;
  for (const PageBytes& page : replica.page) {
    plan.cache_bytes_per_token += page.full / settings.page_size;
    plan.window_bytes_per_token += page.window / settings.page_size;
    plan.cache_bytes += replicas * (settings.pages * page.full + settings.window_pages * page.window);
  }
  add_weights(replica, plan);
  return plan;
}

}  // namespace

Result<CompiledProgram> plan_serving(Runtime& runtime, const SharedModel& model, const Options& options) {
  TSR_ASSIGN_OR_RETURN(EngineSettings settings, read_engine_settings(options, &model));
  TSR_RETURN_IF_ERROR(load_draft_model(settings));
  TSR_ASSIGN_OR_RETURN(const int32_t replicas, count_replicas(settings.serving.compute.parallel));
  ServingSettings given = settings_of_replica(std::move(settings.serving), replicas);
  const ComputeSettings compute = given.compute;
  ReplicaPlan replica;
  replica.forward = model.graph();
  replica.chosen = chosen_pages(given);
  TSR_ASSIGN_OR_RETURN(replica.given, finalized(std::move(given), replica.forward, model.context_length()));
  TSR_ASSIGN_OR_RETURN(replica.devices,
                       runtime.open_devices(compute.devices, compute.profile, {.index = 0, .count = replicas}));
  const std::vector<int64_t> limits = limits_of(*replica.devices, compute.memory_limit);
  TSR_RETURN_IF_ERROR(plan_draft(replica, model));
  TSR_RETURN_IF_ERROR(compile_replica(replica));

  ServingPlan plan = replica_plan(replica, replicas);
  TSR_ASSIGN_OR_RETURN(const int64_t fitting, count_fitting_sequences(replica, replicas, limits));
  plan.sequences_that_fit = replicas * fitting;
  add_devices(replica, *replica.devices, limits, plan);
  for (int32_t index = 1; index < replicas; ++index) {
    TSR_ASSIGN_OR_RETURN(const auto devices,
                         runtime.open_devices(compute.devices, compute.profile, {.index = index, .count = replicas}));
    add_devices(replica, *devices, limits, plan);
  }
  auto record = std::make_shared<PlanRecord>(*replica.compiled.record);
  record->serving = std::move(plan);
  replica.compiled.record = std::move(record);
  return std::move(replica.compiled);
}

Status check_serving_options(const Options& options) { return read_engine_settings(options, nullptr).status(); }

}  // namespace tessera
