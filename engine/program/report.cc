#include "engine/program/report.h"

#include <cinttypes>
#include <cstdio>
#include <utility>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

Json search_object(const PlanSearch& search) {
  Json closed = Json::array();
  for (const ClosedStrategy& it : search.closed)
    closed.push_back({{"strategy", it.strategy}, {"bound_seconds", it.bound_s}});
  return {{"configurations", search.configurations},
          {"solved", search.solved},
          {"too_large", search.too_large},
          {"refused", search.refused},
          {"closed_by_bound", search.closed_by_bound},
          {"open", search.open},
          {"bound_seconds", search.bound_s},
          {"closed", closed}};
}

void add_devices(const PlanRecord& record, Json& devices) {
  for (const PlanRecord::Device& device : record.devices) {
    devices.push_back({{"name", device.name},
                       {"arena_bytes", {{"predicted", device.arena_bytes}}},
                       {"max_live_bytes", device.max_live_bytes},
                       {"peak", device.peak}});
    if (device.host_arena_bytes > 0)
      devices.back()["host_arena_bytes"] = Json{{"predicted", device.host_arena_bytes}};
    if (device.file_arena_bytes > 0)
      devices.back()["file_arena_bytes"] = Json{{"predicted", device.file_arena_bytes}};
  }
}

Json serving_object(const ServingPlan& plan) {
  Json devices = Json::array();
  for (const ServingPlan::Device& device : plan.devices) {
    devices.push_back({{"name", device.name},
                       {"arena_bytes", {{"predicted", device.arena_bytes}}},
                       {"limit_bytes", device.limit_bytes},
                       {"fits", device.fits()}});
    if (device.draft_bytes > 0) devices.back()["draft_bytes"] = device.draft_bytes;
  }
  Json json = {{"replicas", plan.replicas},
               {"context", plan.context},
               {"sequences", plan.sequences},
               {"sequences_that_fit", plan.sequences_that_fit},
               {"page_tokens", plan.page_tokens},
               {"cache_tokens", plan.cache_tokens},
               {"cache_bytes_per_token", plan.cache_bytes_per_token},
               {"cache_bytes", plan.cache_bytes},
               {"weight_bytes", plan.weight_bytes},
               {"arranged_weight_bytes", plan.arranged_weight_bytes},
               {"devices", std::move(devices)}};
  if (plan.window > 0) {
    json["window"] = plan.window;
    json["window_cache_tokens"] = plan.window_cache_tokens;
    json["window_bytes_per_token"] = plan.window_bytes_per_token;
  }
  return json;
}

Json plan_object(const PlanRecord& record) {
  const Plan& plan = record.entries[0].plan;
  Json symbols = Json::object(), devices = Json::array(), candidates = Json::array();
  for (const auto& [name, value] : plan.symbols) symbols[name] = value;
  char profile[24] = "";
  if (plan.estimate.profile != 0)
    std::snprintf(profile, sizeof profile, "%016" PRIx64, plan.estimate.profile);
  add_devices(record, devices);
  for (const Candidate& candidate : record.candidates)
    candidates.push_back({{"strategy", candidate.strategy},
                          {"step_seconds", candidate.step_time_s},
                          {"arena_bytes", candidate.arena_bytes},
                          {"rejected", candidate.rejected}});
  for (size_t i = 0; i < record.candidates.size(); ++i)
    if (const double measured_s = record.candidates[i].measured_s; measured_s > 0)
      candidates[i]["measured_step_seconds"] = measured_s;
  // Activation type in matmuls with quantized weights,
  // else the type of rounded activations; null: neither.
  Json activations;
  for (const Node& node : record.entries[0].graph->nodes()) {
    const std::string type(attr_string_or(node.attrs, "activations", ""));
    if (type.empty() || node.op->weight.logical_op.empty()) continue;
    const TensorId weight = node.inputs[static_cast<size_t>(node.op->weight.operand)];
    const bool is_block = is_block_type(record.entries[0].graph->type(weight).dtype);
    if (is_block || (type != "f32" && activations.is_null())) activations = type;
  }
  Json json = {{"activations", activations},
          {"mesh", plan.stages.empty() ? "" : to_text(plan.stages[0].mesh)},
          {"strategy", plan.strategy},
          {"predicted_step_seconds", plan.estimate.step_time_s},
          {"predicted_compute_seconds", plan.estimate.compute_s},
          {"predicted_communication_seconds", plan.estimate.communication_s},
          {"gap", plan.estimate.gap},
          {"search", search_object(record.search)},
          {"profile", profile},
          {"global_batch", plan.global_batch},
          {"micro_batches", plan.micro_batches},
          {"accumulate", record.accumulate},
          {"device_count", record.cluster.devices.size()},
          {"symbols", symbols},
          {"devices", devices},
          {"candidates", candidates}};
  if (record.cluster.node_devices > 0) json["network_bytes"] = record.network_bytes;
  if (record.serving) json["serving"] = serving_object(*record.serving);
  return json;
}

Json memory_array(std::span<const MemoryReport> memory) {
  Json devices = Json::array();
  const auto arena = [](int64_t predicted, int64_t measured) {
    return Json{{"predicted", predicted}, {"measured", measured}};
  };
  for (const MemoryReport& report : memory) {
    Json device = {{"name", report.device},
                   {"arena_bytes", arena(report.predicted_bytes, report.measured_bytes)},
                   {"max_live_bytes", report.max_live_bytes}};
    if (report.shared_bytes > 0) {
      device["shared_weight_bytes"] = report.shared_bytes;
      device["copied_weight_bytes"] = report.copied_bytes;
    }
    if (report.host_predicted_bytes > 0)
      device["host_arena_bytes"] = arena(report.host_predicted_bytes, report.host_measured_bytes);
    if (report.file_predicted_bytes > 0)
      device["file_arena_bytes"] = arena(report.file_predicted_bytes, report.file_measured_bytes);
    if (report.device_predicted_bytes >= 0)
      device["device_bytes"] = arena(report.device_predicted_bytes, report.device_measured_bytes);
    devices.push_back(std::move(device));
  }
  return devices;
}

Json comm_array(std::span<const CommReport> communication) {
  Json comm = Json::array();
  for (const CommReport& report : communication)
    comm.push_back({{"collective", report.collective},
                    {"axis", report.axis},
                    {"calls", report.calls},
                    {"bytes", report.bytes}});
  return comm;
}

}  // namespace

std::string plan_json(const PlanRecord& record) { return dump(plan_object(record)); }

std::string program_json(const Program& program, const DeviceSet& devices) {
  Json list = Json::array(), entries = Json::array();
  for (size_t at = 0; at < program.ranks.size(); ++at) {
    const RankProgram& one = program.ranks[at];
    list.push_back({{"name", devices.device_name(program.rank_of(at))},
                    {"arena_bytes", {{"predicted", one.arena_bytes}}},
                    {"max_live_bytes", one.max_live_bytes},
                    {"slots", one.slots.size()},
                    {"peak", one.peak}});
  }
  for (const EntryPoint& entry : program.ranks[0].entries)
    entries.push_back({{"name", entry.name}, {"instructions", entry.code.size()}});
  return dump(
      Json{{"fingerprint", format("{}", fingerprint(program))}, {"devices", list}, {"entries", entries}});
}

std::string devices_json(const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  Json list = Json::array();
  for (int32_t rank = 0; rank < devices.size(); ++rank) {
    const DeviceKind& kind = cluster.kinds[static_cast<size_t>(cluster.devices[static_cast<size_t>(rank)])];
    list.push_back({{"name", devices.device_name(rank)},
                    {"kind", kind.name},
                    {"memory_bytes", kind.memory_bytes},
                    {"matmul_flops_per_s", kind.matmul_flops_per_s},
                    {"memory_bytes_per_s", kind.memory_bytes_per_s}});
  }
  return dump(
      Json{{"text", devices.text()},
           {"devices", list},
           {"shared_cores", cluster.shared_cores},
           {"link", {{"bytes_per_s", cluster.link.bytes_per_s}, {"latency_s", cluster.link.latency_s}}}});
}

std::string session_json(std::span<const MemoryReport> memory, std::span<const CommReport> communication,
                         int64_t allocations) {
  return dump(Json{
      {"devices", memory_array(memory)}, {"comm", comm_array(communication)}, {"allocations", allocations}});
}

std::string memory_json(std::span<const MemoryReport> memory) { return dump(memory_array(memory)); }

std::string trainer_json(const TrainerReport& report, const PlanRecord& plan) {
  Json json = {{"step", report.step},
               {"skipped_steps", report.skipped_steps},
               {"unlabelled_steps", report.unlabelled_steps},
               {"tokens_per_step", report.tokens_per_step},
               {"plan", plan_object(plan)},
               {"devices", memory_array(report.memory)},
               {"comm", comm_array(report.communication)},
               {"allocations_after_first_step", report.allocations_after_first_step},
               {"saving",
                {{"model_bytes", report.model_bytes},
                 {"checkpoint_bytes", report.checkpoint_bytes},
                 {"memory_bytes", report.saving_memory_bytes},
                 {"snapshot_bytes", report.snapshot_bytes}}}};
  if (report.preference) json["preference"] = rewards_json(*report.preference);
  return dump(json);
}

std::string generator_json(const GeneratorReport& report, const PlanRecord& plan) {
  return dump(Json{
      {"prompt_tokens", report.prompt_tokens},
      {"reused_tokens", report.reused_tokens},
      {"tokens", report.tokens},
      {"context", report.context},
      {"seed", report.seed},
      {"prefill_seconds", report.prefill_seconds},
      {"decode_seconds", report.decode_seconds},
      {"launches_per_token", report.launches},
      {"token_reads",
       {{"parameter_bytes", report.parameter_bytes_read}, {"full_cache_bytes", report.cache_bytes_read}}},
      {"plan", plan_object(plan)},
      {"devices", memory_array(report.memory)}});
}

std::string scorer_json(const ScorerReport& report, const PlanRecord& plan) {
  return dump(Json{{"sequences", report.sequences},
                   {"tokens", report.tokens},
                   {"scored_tokens", report.scored_tokens},
                   {"windows", report.windows},
                   {"positions", report.positions},
                   {"seconds", report.seconds},
                   {"seq", report.seq},
                   {"stride", report.stride},
                   {"batch", report.batch},
                   {"bos", report.bos},
                   {"plan", plan_object(plan)},
                   {"devices", memory_array(report.memory)}});
}

std::string engine_json(const EngineReport& report, std::span<const PlanRecord* const> plans) {
  Json plan = plan_object(*plans[0]);
  for (const PlanRecord* const other : plans.subspan(1)) add_devices(*other, plan["devices"]);
  Json json = {{"replicas", report.replicas},
               {"requests", report.requests},
               {"running", report.running},
               {"waiting", report.waiting},
               {"steps", report.steps},
               {"tokens", report.tokens},
               {"cached_tokens", report.cached_tokens},
               {"generated", report.generated},
               {"preemptions", report.preemptions},
               {"speculated", report.drafted},
               {"accepted", report.accepted_drafts},
               {"adapters", report.adapters},
               {"cache_tokens", report.cache_tokens},
               {"free_cache_tokens", report.free_cache_tokens},
               {"window_cache_tokens", report.window_cache_tokens},
               {"free_window_cache_tokens", report.free_window_cache_tokens},
               {"window", report.window},
               {"context", report.context},
               {"sequences", report.sequences},
               {"batch_invariant", report.batch_invariant},
               {"seconds", report.seconds},
               {"draft_seconds", report.draft_seconds},
               {"recommended", {{"not_obeyed", report.not_obeyed}}},
               {"plan", std::move(plan)},
               {"devices", memory_array(report.memory)}};
  if (!report.draft_memory.empty()) json["draft_devices"] = memory_array(report.draft_memory);
  return dump(json);
}

std::string embedder_json(const EmbedderReport& report, const PlanRecord& plan) {
  Json json = {
      {"texts", report.texts},         {"tokens", report.tokens},   {"truncated", report.truncated},
      {"positions", report.positions}, {"seconds", report.seconds}, {"seq", report.seq},
      {"batch", report.batch},         {"width", report.width},     {"output", report.output},
      {"normalize", report.normalize}, {"plan", plan_object(plan)}, {"devices", memory_array(report.memory)}};
  if (!report.pooling.empty()) json["pooling"] = report.pooling;
  if (!report.activation.empty()) json["activation"] = report.activation;
  if (!report.labels.empty()) json["labels"] = report.labels;
  return dump(json);
}

}  // namespace tessera
