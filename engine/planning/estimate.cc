// Options become a request; estimate_plan searches or prices compositions of it, and the found plan is turned into an
// explanation, a report and a page.
#include "engine/planning/estimate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "engine/base/text_file.h"
#include "engine/model/described_model.h"
#include "engine/planning/certificate.h"
#include "engine/planning/estimated_plan.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "parallel/planner/explain.h"
#include "parallel/pricing/cluster_presets.h"
#include "serialize/cluster_json.h"
#include "serialize/explanation_json.h"
#include "text/json.h"

namespace tessera {

namespace {

// Prices err by more than this share of a step: among plans within it the one with least tensor parallelism is taken.
constexpr double kNearlyAsFast = 0.02;

Result<Cluster> open_cluster(const std::string& text) {
  if (!text.ends_with(".json")) return cluster_preset(text);
  const Result<std::string> content = read_text_file(text, "cluster file", kMostClusterBytes);
  if (!content.ok())
    return Status(
        content.status().code(),
        format("{}; wanted a JSON file, or a preset such as dgx-a100-80gb:512", content.status().message()));
  Result<Cluster> cluster = cluster_from_json(*content);
  if (!cluster.ok()) return cluster.status().with_context(format("cluster file '{}'", text));
  return cluster;
}

struct Estimate {
  std::string name;  // of the model, as the caller wrote it
  EstimateRequest request;
  int64_t devices = 0;  // given
  int64_t tokens = 0, parameters = 0;
  EstimatedPlan found;
  std::vector<StepProfile> profiles;  // of the plan's blocks: kept, and computed again
  Json certificate;                   // where one was asked for
  double gap() const { return std::max(0.0, 1 - found.search->search.bound_s / found.plan.time.step_s); }
};

Result<Estimate> find_estimate(const DescribedModel& model_given, const Options& options) {
  OptionReader reader(options, "estimate");
  Estimate it;
  it.name = model_given.name;
  it.request.description = model_given.description;
  it.request.cluster = reader.text("cluster");
  it.request.batch = reader.i64("batch", 8, 1, int64_t{1} << 32);
  it.request.parallel = reader.text("parallel");
  it.request.memory_limit = reader.bytes("memory_limit", 0);
  it.request.training = training_options(options);
  const bool certified = reader.i64("certificate", 0, 0, 1) == 1;
  const std::string word = reader.choice("verify", "auto", {"auto", "off", "on"});
  const Verify verify = word == "on" ? Verify::kOn : word == "off" ? Verify::kOff : Verify::kAuto;
  const double within = reader.f64("within", certified ? 0 : kNearlyAsFast, 0, 1);
  reader.choice("mode", "train", {"train", "generate"});
  for (const auto& [key, value] : it.request.training) reader.accept({key});
  if (certified && within > 0)
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("estimate: option 'within' is {}, and what is certified is the fastest plan: "
                              "leave it out, or 'certificate'",
                              within)));
  if (it.request.cluster.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "estimate: option 'cluster' is missing; an example: dgx-a100-80gb:512"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const Fleet fleet, open_fleet(it.request.cluster));
  TSR_RETURN_IF_ERROR(check_memory_known(fleet, it.request.memory_limit));
  it.devices = fleet.devices();
  TSR_ASSIGN_OR_RETURN(const EstimatedModel model, EstimatedModel::of(it.request));
  it.tokens = model.tokens(), it.parameters = model.parameters();
  TSR_ASSIGN_OR_RETURN(it.found, estimate_plan(model, it.request, fleet, verify, within));
  if (certified) {
    TSR_ASSIGN_OR_RETURN(it.certificate, certificate_json(it.request, it.found));
  }
  TSR_ASSIGN_OR_RETURN(it.profiles, plan_profiles(model, it.request, it.found));
  return it;
}

// The options of a training by the method: of one that has adapters their rank, and the type of the base.
Result<Options> options_of_method(const std::string& method, Options options, const DescribedModel& model) {
  constexpr int64_t kRank = 16;  // as adapters have where none is given
  constexpr std::string_view kQuantized = "qlora:";
  options.erase("method");
  const bool is_quantized = method.starts_with(kQuantized);
  if (!is_quantized && method != "full" && method != "lora")
    return Status(StatusCode::kInvalidArgument,
                  format("estimate: option 'method' is '{}', wanted auto, full, lora or qlora:TYPE, as in qlora:q4_0",
                         quote(method)));
  if (method == "full") {
    for (const char* key : {"lora", "base"})
      if (options.contains(key))
        return Status(StatusCode::kInvalidArgument,
                      format("estimate: method full trains all parameters, and option '{}' is of adapters over a base: "
                             "leave out one",
                             key));
    return options;
  }
  options.try_emplace("lora", kRank);
  if (is_quantized) {
    if (options.contains("base"))
      return Status(StatusCode::kInvalidArgument,
                    format("estimate: method {} names the type of the base, as option 'base' does: leave out one",
                           quote(method)));
    options["base"] = method.substr(kQuantized.size());
  } else if (model.stored) {
    options.try_emplace("base", std::string(to_text(*model.stored)));
  }
  return options;
}

double bits_an_element(DType type) {
  return 8.0 * static_cast<double>(info(type).block_bytes) / static_cast<double>(info(type).block_elements);
}

// Methods that "auto" chooses from, the richest first: types that are no narrower than the file's are left out.
std::vector<std::string> all_methods(const DescribedModel& model) {
  std::vector<std::string> methods = {"full", "lora"};
  for (const DType type : {DType::kQ8_0, DType::kNF4, DType::kQ4_0})
    if (!model.stored || bits_an_element(type) < bits_an_element(*model.stored))
      methods.push_back("qlora:" + std::string(to_text(type)));
  return methods;
}

// Of option "method": the first of its methods that fits. Without it `methods` stays null; adapters over a file's base
// find it in the type that the file has.
Result<Estimate> find_estimate_of_method(const DescribedModel& model, const Options& options, Json& methods) {
  const auto given = options.find("method");
  if (given == options.end()) {
    Options own = options;
    if (options.contains("lora") && model.stored) own.try_emplace("base", std::string(to_text(*model.stored)));
    return find_estimate(model, own);
  }
  const std::string* wanted = std::get_if<std::string>(&given->second);
  if (wanted == nullptr) return Status(StatusCode::kInvalidArgument, "estimate: option 'method' is no text");
  if (*wanted == "auto" && options.contains("base"))
    return Status(StatusCode::kInvalidArgument,
                  "estimate: method auto chooses the type of the base, which option 'base' gives: leave out one");
  const std::vector<std::string> tried =
      *wanted == "auto" ? all_methods(model) : std::vector<std::string>{*wanted};
  Json all = Json::array();
  std::optional<Estimate> chosen;
  std::string choice;
  Status refused;
  for (const std::string& method : tried) {
    // "auto" may come to full, which has no adapters.
    Options own = options;
    if (*wanted == "auto" && method == "full") own.erase("lora");
    TSR_ASSIGN_OR_RETURN(own, options_of_method(method, std::move(own), model));
    Result<Estimate> found = find_estimate(model, own);
    if (!found.ok() && (found.status().code() != StatusCode::kOutOfMemory || tried.size() == 1)) return found.status();
    const bool fits = found.ok() && found->found.fits();
    Json one = {{"method", method}, {"fits", fits}};
    if (found.ok()) {
      one["strategy"] = to_text(found->found.plan.spec);
      one["step_seconds"] = found->found.plan.time.step_s;
      one["bytes"] = found->found.bytes();
    } else {
      refused = found.status();
      one["error"] = std::string(refused.message());
      if (const auto limit = refused.number("smallest_limit_bytes")) one["smallest_limit_bytes"] = *limit;
    }
    all.push_back(std::move(one));
    if (fits || (found.ok() && tried.size() == 1)) {
      if (!chosen) chosen = *std::move(found), choice = method;
    }
  }
  if (!chosen) {
    if (refused.ok())
      return Status(StatusCode::kOutOfMemory, "estimate: by no method does the plan of option 'parallel' fit");
    return refused.with_context("no method fits; the last");
  }
  methods = {{"method", choice}, {"methods", std::move(all)}};
  return *std::move(chosen);
}

std::vector<std::string> kind_reasons(const std::vector<KindChoice>& kinds) {
  std::vector<std::string> reasons;
  if (kinds.empty()) return reasons;
  reasons.push_back(
      format("The plan is for {}{}{}", kinds[0].used,
             kinds[0].used.find(" + ") != std::string::npos ? ", each taken for the slowest of them" : "",
             kinds[0].idle.empty() ? "" : format("; idle: {}", kinds[0].idle)));
  for (size_t i = 1; i < kinds.size(); ++i)
    reasons.push_back(kinds[i].step_s ? format("With {} a step would take {} s", kinds[i].used,
                                               std::round(*kinds[i].step_s * 1e6) / 1e6)
                                      : format("With {} no plan fits", kinds[i].used));
  return reasons;
}

// Cost of a step: devices times hours.
std::string cost_of(const Estimate& it) {
  const double hours =
      it.found.plan.time.step_s * static_cast<double>(it.found.cluster.devices.size()) / 3600;
  return format("A step takes {} device-hours, a thousand steps {}", std::round(hours * 1e3) / 1e3,
                std::round(hours * 1e3));
}

std::vector<std::string> reasons_of(const Estimate& it) {
  std::vector<std::string> reasons = kind_reasons(it.found.kinds);
  reasons.push_back(cost_of(it));
  if (!it.found.search) return reasons;
  const ComposedPlan &plan = it.found.plan, &fastest = it.found.search->fastest;
  if (plan.time.step_s > fastest.time.step_s)
    reasons.push_back(
        format("'{}' is predicted {} % faster, less than prices are sure of; this plan counts less on {}",
               to_text(fastest.spec), std::round(1000 * (1 - fastest.time.step_s / plan.time.step_s)) / 10,
               plan.spec.tp < fastest.spec.tp ? "ranks of tensor parallelism never waiting for each other"
                                              : "kernels gaining from larger micro-batches"));
  return reasons;
}

std::vector<RunnerUp> runners_up(const EstimatedPlan& found, int64_t memory_limit) {
  std::vector<RunnerUp> all;
  if (!found.search) return all;
  constexpr size_t kMost = 12;
  const std::string chosen = to_text(found.plan.spec);
  const int64_t limit = composed_limit(found.cluster, memory_limit);
  for (const ComposedEntry& entry : found.search->entries) {
    if (all.size() == kMost) break;
    if (entry.strategy == chosen) continue;
    RunnerUp& it = all.emplace_back();
    it.strategy = entry.strategy;
    it.step_s = entry.seconds;
    it.loses_s = entry.seconds - found.plan.time.step_s;
    it.bytes = entry.bytes + found.reserved_bytes;
    it.over_bytes = std::max<int64_t>(0, entry.bytes - limit);
  }
  return all;
}

// Devices that were lowered whole hold what their arenas take, which may be more or less than what was composed: the
// difference goes to the buffers between which there is room.
void take_lowered_bytes(const EstimatedPlan& found, Explanation& explanation) {
  if (found.lowered.empty()) return;
  explanation.bytes_by_device = found.bytes();
  int64_t more = std::ranges::max(explanation.bytes_by_device) - explanation.memory_bytes;
  explanation.memory_bytes += more;
  for (const char* cause : {"unused", "transient", "workspace", "activations"}) {
    const auto share = std::ranges::find_if(explanation.memory, [&](const MemoryShare& other) {
      return other.tier == Tier::kDevice && other.cause == cause;
    });
    if (share == explanation.memory.end() || more == 0) continue;
    const int64_t taken = std::max(more, -share->bytes);
    share->bytes += taken, more -= taken;
  }
  if (more != 0) explanation.memory.push_back({"unused", more, Tier::kDevice});
}

Result<Explanation> explain_estimate(const Estimate& it, bool drawings) {
  const EstimatedPlan& found = it.found;
  const ComposedExplanationInput input{.spec = &found.plan.spec,
                                       .variants = it.profiles,
                                       .stages = &found.plan.stages,
                                       .cluster = &found.cluster,
                                       .global_batch = it.request.batch,
                                       .memory_limit = found.limit == INT64_MAX ? 0 : found.limit,
                                       .reserved_bytes = found.reserved_bytes,
                                       .bound_s = found.search ? found.search->search.bound_s : 0,
                                       .gap = found.search ? it.gap() : -1,
                                       .runners_up = runners_up(found, it.request.memory_limit),
                                       .reasons = reasons_of(it),
                                       .drawings = {.wanted = drawings}};
  TSR_ASSIGN_OR_RETURN(Explanation explanation, explain_composed(input));
  take_lowered_bytes(found, explanation);
  explanation.subject = it.name;
  explanation.cluster = it.request.cluster;
  explanation.devices = it.devices;
  return explanation;
}

// The slowest stage's seconds by cause.
Json seconds_object(const Explanation& explanation) {
  Json seconds = Json::object();
  for (const auto& [cause, share] : step_seconds(explanation.time)) seconds[cause] = share;
  return seconds;
}

Json stages_array(const EstimatedPlan& found) {
  Json stages = Json::array();
  const std::vector<int64_t> bytes = found.bytes();
  for (size_t d = 0; d < bytes.size(); ++d) {
    const ComposedPlan::Blocks blocks = found.plan.blocks_on(static_cast<int32_t>(d));
    stages.push_back(
        {{"blocks", blocks.count}, {"recomputed", blocks.recomputed}, {"memory_bytes", bytes[d]}});
  }
  return stages;
}

Json kinds_array(const std::vector<KindChoice>& kinds) {
  Json all = Json::array();
  for (const KindChoice& choice : kinds) {
    all.push_back({{"used", choice.used}, {"idle", choice.idle}});
    if (choice.step_s) all.back()["step_seconds"] = *choice.step_s;
  }
  return all;
}

void add_search(const Estimate& it, Json& report) {
  const ComposedSearchResult& result = *it.found.search;
  if (!it.certificate.is_null()) report["certificate"] = it.certificate;
  report["gap"] = it.gap();
  report["fastest"] = {{"parallel", to_text(result.fastest.spec)},
                       {"step_seconds", result.fastest.time.step_s}};
  report["bound_seconds"] = result.search.bound_s;
  report["search"] = {{"configurations", result.search.configurations},
                      {"closed_by_bound", result.search.closed_by_bound},
                      {"solved", result.search.solved},
                      {"too_large", result.search.too_large},
                      {"open", result.search.open}};
  Json candidates = Json::array();
  for (const RunnerUp& other : runners_up(it.found, it.request.memory_limit))
    candidates.push_back(
        {{"strategy", other.strategy}, {"step_seconds", other.step_s}, {"memory_bytes", other.bytes}});
  report["candidates"] = candidates;
}

}  // namespace

Result<Fleet> open_fleet(const std::string& text) {
  Fleet fleet;
  // A file name may contain a +.
  std::error_code ignored;
  if (text.ends_with(".json") && std::filesystem::exists(text, ignored)) {
    TSR_ASSIGN_OR_RETURN(Cluster cluster, open_cluster(text));
    fleet.clusters.push_back(std::move(cluster));
    return fleet;
  }
  for (const std::string& one : split(text, '+')) {
    TSR_ASSIGN_OR_RETURN(Cluster cluster, open_cluster(std::string(trim(one))));
    fleet.clusters.push_back(std::move(cluster));
  }
  return fleet;
}

Status check_memory_known(const Fleet& fleet, int64_t memory_limit) {
  if (memory_limit > 0) return {};
  for (const Cluster& cluster : fleet.clusters)
    for (const int32_t kind : cluster.devices)
      if (const DeviceKind& it = cluster.kinds[static_cast<size_t>(kind)]; it.memory_bytes == 0)
        return Status(
            StatusCode::kInvalidArgument,
            format("device kind '{}' has memory_bytes = 0, wanted its memory: write it in the cluster "
                   "file, or give the option memory_limit",
                   it.name));
  return {};
}

Result<std::string> estimate_page(std::string_view text, const Options& options) {
  TSR_ASSIGN_OR_RETURN(const DescribedModel model, describe_model(text));
  Json methods;
  TSR_ASSIGN_OR_RETURN(const Estimate it, find_estimate_of_method(model, options, methods));
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(it, true));
  return explanation_to_page(explanation);
}

Result<std::string> estimate_step(std::string_view text, const Options& options) {
  TSR_ASSIGN_OR_RETURN(const DescribedModel model, describe_model(text));
  Json methods;
  TSR_ASSIGN_OR_RETURN(const Estimate it, find_estimate_of_method(model, options, methods));
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(it, false));
  const EstimatedPlan& found = it.found;
  const double step_s = found.plan.time.step_s;
  const std::vector<int64_t> bytes = found.bytes();
  Json report = {
      {"model", it.name},
      {"description", it.request.description},
      {"tokens", it.tokens},
      {"parameters", it.parameters},
      {"cluster", it.request.cluster},
      {"devices", it.devices},
      {"global_batch", it.request.batch},
      {"parallel", to_text(found.plan.spec)},
      {"stages", stages_array(found)},
      {"reserved_bytes", found.reserved_bytes},
      {"composed", {{"memory_bytes", std::ranges::max(bytes)}, {"by_device", bytes}, {"fits", found.fits()}}},
      {"micro_batches", found.plan.stages.shape.micro_batches},
      {"predicted_step_seconds", step_s},
      {"tokens_per_second", static_cast<double>(it.request.batch * it.tokens) / step_s},
      {"seconds", seconds_object(explanation)}};
  if (!found.lowered.empty()) {
    Json devices = Json::array();
    for (const LoweredDevice& device : found.lowered)
      devices.push_back({{"device", device.device}, {"memory_bytes", device.bytes}});
    report["verified"] = {{"devices", devices}};
  }
  report["reasons"] = reasons_of(it);
  if (!methods.is_null()) report["method"] = methods["method"], report["methods"] = methods["methods"];
  if (!found.kinds.empty()) report["kinds"] = kinds_array(found.kinds);
  if (found.search) add_search(it, report);
  report["explanation"] = Json::parse(explanation_to_json(explanation));
  return dump(report);
}

}  // namespace tessera
