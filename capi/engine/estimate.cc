#include "capi/engine/estimate.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "capi/engine/certificate.h"
#include "capi/engine/composed_estimate.h"
#include "capi/engine/options.h"
#include "capi/engine/text_file.h"
#include "graph/base/text.h"
#include "parallel/analytic/batch_search.h"
#include "parallel/analytic/explain_step.h"
#include "parallel/analytic/frozen_reasons.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/steady_step.h"
#include "parallel/analytic/step_search.h"
#include "parallel/analytic/step_time.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/reserved_memory.h"
#include "serialize/cluster_json.h"
#include "serialize/explanation_json.h"
#include "serialize/json.h"

namespace tessera {

namespace {

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

Json seconds_object(const StepTime& time) {
  return {{"compute", time.compute_s - time.recompute_s},
          {"recompute", time.recompute_s},
          {"communication", time.communication_s},
          {"offload", time.offload_s},
          {"bubble", time.bubble_s},
          {"gradients", time.gradients_s},
          {"update", time.update_s}};
}

// Words by name, blanks taken off: "tp = 2" has tp and 2.
std::map<std::string, std::string> words_by_name(std::string_view words) {
  std::map<std::string, std::string> values;
  for (const std::string& word : split(words, ',')) {
    const size_t at = word.find('=');
    values[std::string(trim(word.substr(0, at)))] =
        at == std::string::npos ? std::string() : std::string(trim(std::string_view(word).substr(at + 1)));
  }
  values.erase("");
  return values;
}

Json stages_array(const FoundStep& found) {
  Json stages = Json::array();
  for (size_t device = 0; device < found.memory_bytes.size(); ++device) {
    const StageBlocks whole = blocks_on(found, static_cast<int32_t>(device));
    stages.push_back({{"blocks", whole.blocks},
                      {"recomputed", whole.full},
                      {"recomputed_selectively", whole.selective},
                      {"memory_bytes", found.memory_bytes[device]}});
  }
  return stages;
}

// Whether the plan is lowered whole: kAuto where that is quick.
enum class Verify : uint8_t { kAuto, kOn, kOff };

struct Estimate {
  std::string cluster_text, parallel, features;
  int64_t devices = 0;  // given
  int64_t batch = 0, memory_limit = 0;
  std::string batch_words;  // range from which the batch is chosen
  double bound_per_s = 0;   // sequences; number of batches tried
  int64_t batches = 0;
  TransformerShape model;
  Cluster cluster;                         // of one kind; with several kinds, those that are used
  FoundStep found;                         // the chosen plan
  std::optional<StepSearchResult> search;  // absent where the plan was given
  Json certificate;                        // where one was asked for
  std::vector<std::string> reasons;
  std::vector<int64_t> composed;  // by device of the pipeline: bytes of its lowered blocks, and its reserve
  std::string not_composed;       // why there are none
  double own_bound_s = 0;         // of the last search, which took plans to hold what they were composed to
  Verify verify = Verify::kAuto;  // the plan is lowered whole
  std::vector<LoweredDevice> lowered;  // with their reserve
  // Gap of the chosen plan, including the time given up for robustness.
  double gap() const { return std::max(0.0, 1 - search->bound_s / found.time.step_s); }
};

}  // namespace

Result<Fleet> open_fleet(const std::string& text) {
  Fleet fleet;
  // A file name may contain a +.
  if (text.ends_with(".json") && std::ifstream(text).good()) {
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

Result<StepSearchOptions> search_options(const SearchRequest& request) {
  TSR_ASSIGN_OR_RETURN(const ForeignPlan plan, parse_foreign_plan(request.parallel, request.features));
  const std::map<std::string, std::string> pinned = words_by_name(request.parallel),
                                           flags = words_by_name(request.features);
  const auto has_value = [&](const char* name, std::string_view part) {
    const auto at = pinned.find(name);
    return at != pinned.end() &&
           (part == ":" ? at->second.find(':') != std::string::npos : at->second == part);
  };
  if (request.memory_limit < 0 || request.memory_limit > kMostBytes)
    return Status(StatusCode::kInvalidArgument,
                  format("the memory limit is {} bytes, wanted 0 (the device's) to {}", request.memory_limit,
                         kMostBytes));
  StepSearchOptions search;
  search.global_batch = request.batch;
  search.memory_limit = request.memory_limit;
  search.features = plan;
  search.features.held = request.held;
  search.pin_sequence_parallel = pinned.contains("sp") || flags.contains("sp");
  if (pinned.contains("tp")) search.tp = plan.tp;
  if (pinned.contains("dp")) search.dp = plan.dp;
  if (pinned.contains("pp")) search.pp = plan.pp;
  if (has_value("pp", ":")) search.virtual_stages = plan.virtual_stages, search.schedule = plan.schedule;
  // Search the whole space; memory savers that slow plans down only on request, or where nothing fits
  // without.
  search.wide = true;
  if (pinned.contains("cp")) search.cp = plan.cp;
  if (pinned.contains("ep")) search.ep = plan.ep;
  search.shard = has_value("shard", "auto");
  search.offload = has_value("offload", "auto");
  if (pinned.contains("zero")) search.zero = plan.zero;
  if (pinned.contains("mb")) search.micro_batch = plan.micro_batch;
  if (pinned.contains("recompute")) search.recompute = plan.recompute;
  return search;
}

namespace {

// Chooses, among plans nearly as fast as the best, the most robust.
void prefer_robust_choice(Estimate& it, const StepSearchOptions& options, double within) {
  it.found = it.search->best;
  auto steady = steady_step(it.model, it.cluster, options, *it.search, within);
  if (!steady) return;
  it.reasons.push_back(
      format("'{}' is predicted {} % faster, less than prices are sure of; this plan counts less on {}",
             to_text(it.found.plan), std::round(1000 * (1 - it.found.time.step_s / steady->time.step_s)) / 10,
             steady->plan.tp < it.found.plan.tp ? "ranks of tensor parallelism never waiting for each other"
                                                : "kernels gaining from larger micro-batches"));
  it.found = std::move(*steady);
  const std::string words = to_text(it.found.plan);
  std::erase_if(it.search->runners_up, [&](const FoundStep& step) { return to_text(step.plan) == words; });
}

// Bytes a device; without one, where nobody tells its memory, as many as there are.
int64_t limit_of(const Estimate& it) {
  const int64_t limit = it.memory_limit > 0 ? it.memory_limit : it.cluster.kinds[0].memory_bytes;
  return limit > 0 ? limit : INT64_MAX;
}

bool lowers_whole(const Estimate& it) {
  // Blocks times micro-batches of all devices that are lowered, which take less than a second.
  constexpr int64_t kQuick = 800;
  return it.verify == Verify::kOn ||
         (it.verify == Verify::kAuto && lowered_passes(it.found, it.batch) <= kQuick);
}

// Bytes of the plan's devices, composed of its lowered blocks; and, where that is asked for, of those lowered whole.
Status compose(Estimate& it, const ModelConfig& config) {
  it.composed.clear(), it.not_composed.clear(), it.lowered.clear();
  Result<std::vector<DeviceBytes>> devices =
      compose_estimate(config, it.model, it.found, it.cluster, it.batch);
  if (!devices.ok()) {
    it.not_composed = std::string(devices.status().message());
    if (it.verify != Verify::kOn) return {};
    return Status(StatusCode::kUnsupported,
                  format("verify: '{}' cannot be lowered: {}", to_text(it.found.plan), it.not_composed));
  }
  const int64_t reserved = reserved_bytes(it.cluster.kinds[0]);
  for (const DeviceBytes& device : *devices) it.composed.push_back(device.total() + reserved);
  const bool is_too_large = std::ranges::max(it.composed) > limit_of(it);
  if (!lowers_whole(it) || (is_too_large && it.verify != Verify::kOn)) return {};
  TSR_ASSIGN_OR_RETURN(it.lowered,
                       lower_estimate(config, it.model, it.found, it.cluster, it.batch, *devices));
  for (LoweredDevice& device : it.lowered) {
    device.bytes += reserved;
    it.composed[static_cast<size_t>(device.device)] = device.bytes;
  }
  return {};
}

// Packing adds up to about a hundredth to what is composed, which is left free on devices that were not lowered whole.
bool fits(const Estimate& it) {
  const int64_t limit = limit_of(it);
  for (size_t d = 0; d < it.composed.size(); ++d) {
    const bool is_exact =
        std::ranges::find(it.lowered, static_cast<int32_t>(d), &LoweredDevice::device) != it.lowered.end();
    if (it.composed[d] > (is_exact ? limit : limit - limit / 100)) return false;
  }
  return true;
}

// The fastest plan whose lowered blocks fit. What the fastest so far was estimated to hold too little, plans of its schedule are estimated
// to hold more from then on; the bound stays the first search's.
Status search_composed(Estimate& it, const ModelConfig& config, const Fleet& fleet, StepSearchOptions& search,
                       double within) {
  constexpr int kMostRounds = 32;
  std::optional<double> bound;
  std::string faster;
  for (int round = 0; round < kMostRounds; ++round) {
    TSR_ASSIGN_OR_RETURN(it.search, search_step(it.model, fleet, search));
    if (it.search->part) it.cluster = *it.search->part;
    it.reasons.clear();
    if (it.search->stage_kinds)
      it.found = it.search->best;
    else
      prefer_robust_choice(it, search, within);
    it.own_bound_s = it.search->bound_s;
    if (bound) it.search->bound_s = std::min(it.search->bound_s, *bound);
    bound = it.search->bound_s;
    if (!faster.empty()) it.reasons.push_back(faster);
    if (it.search->stage_kinds) {
      it.not_composed = "stages lie on devices of several kinds";
      return it.verify == Verify::kOn ? Status(StatusCode::kUnsupported, "verify: " + it.not_composed)
                                      : Status();
    }
    TSR_RETURN_IF_ERROR(compose(it, config));
    if (fits(it)) return {};
    if (faster.empty())
      faster = format("'{}' looked as if it took {} s; lowered block by block it needs {} of {}",
                      to_text(it.found.plan), std::round(it.found.time.step_s * 1e3) / 1e3,
                      bytes_text(std::ranges::max(it.composed)), bytes_text(limit_of(it)));
    double& held = search.features.held[static_cast<size_t>(it.found.plan.schedule)];
    const double share = held_share_of(it.model, it.found, it.cluster, it.batch, it.composed);
    held = std::max(share, 1.01 * held);
  }
  return Status(StatusCode::kOutOfMemory,
                format("no plan was found in {} searches whose lowered blocks fit {}", kMostRounds,
                       bytes_text(limit_of(it))));
}

Result<Estimate> find_estimate(std::string_view description, const Options& options) {
  OptionReader reader(options, "estimate");
  Estimate it;
  it.cluster_text = reader.text("cluster");
  // A number, or a range to choose from.
  const auto batch = options.find("batch");
  if (batch != options.end() && std::holds_alternative<std::string>(batch->second))
    it.batch_words = reader.text("batch");
  else
    it.batch = reader.i64("batch", 8, 1, int64_t{1} << 32);
  it.parallel = reader.text("parallel"), it.features = reader.text("features");
  it.memory_limit = reader.bytes("memory_limit", 0);
  const bool certified = reader.i64("certificate", 0, 0, 1) == 1;
  const std::string verify = reader.choice("verify", "auto", {"auto", "off", "on"});
  it.verify = verify == "on" ? Verify::kOn : verify == "off" ? Verify::kOff : Verify::kAuto;
  const double within = reader.f64("within", certified ? 0 : kNearlyAsFast, 0, 1);
  if (certified && within > 0)
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("estimate: option 'within' is {}, and what is certified is the fastest plan: "
                              "leave it out, or 'certificate'",
                              within)));
  if (it.cluster_text.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "estimate: option 'cluster' is missing; an example: dgx-a100-80gb:512"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(description));
  TSR_ASSIGN_OR_RETURN(it.model, transformer_shape(config));
  TSR_ASSIGN_OR_RETURN(const Fleet fleet, open_fleet(it.cluster_text));
  it.cluster = fleet.clusters[0];
  TSR_ASSIGN_OR_RETURN(const ForeignPlan plan, parse_foreign_plan(it.parallel, it.features));
  const int64_t devices = it.devices = fleet.devices();
  const bool complete = static_cast<int64_t>(plan.tp) * plan.dp * plan.pp * plan.cp * plan.ep == devices &&
                        !it.parallel.empty();
  if (!complete) TSR_RETURN_IF_ERROR(check_memory_known(fleet, it.memory_limit));
  if (!it.batch_words.empty()) {
    if (complete || certified)
      return Status(StatusCode::kInvalidArgument,
                    format("batch '{}' is searched with the rest of the plan: give a number where '{}' is {}",
                           it.batch_words, it.parallel, certified ? "certified" : "a complete mesh"));
    TSR_ASSIGN_OR_RETURN(const BatchRange range, parse_batch_range(it.batch_words, devices));
    const SearchRequest request{std::string(description), it.cluster_text, it.parallel, it.features, 1,
                                it.memory_limit};
    TSR_ASSIGN_OR_RETURN(StepSearchOptions search, search_options(request));
    TSR_ASSIGN_OR_RETURN(BatchSearchResult found, search_batch(it.model, fleet, search, range));
    it.batch = found.batch, it.bound_per_s = found.bound_per_s;
    it.batches = found.looked;
    search.global_batch = it.batch;
    TSR_RETURN_IF_ERROR(search_composed(it, config, fleet, search, within));
    return it;
  }
  if (complete) {
    if (certified)
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' is priced as it is, and a search is what a certificate certifies: leave out "
                           "tp, dp or pp, or 'certificate'",
                           it.parallel));
    TSR_ASSIGN_OR_RETURN(PricedOnFleet priced, price_step(it.model, plan, fleet, it.batch));
    it.found = std::move(priced.found), it.cluster = std::move(priced.part);
    TSR_RETURN_IF_ERROR(compose(it, config));
    if (it.verify == Verify::kOn && !fits(it))
      return Status(StatusCode::kOutOfMemory,
                    format("verify: '{}' needs {} on its fullest device, the limit is {}", it.parallel,
                           bytes_text(std::ranges::max(it.composed)), bytes_text(limit_of(it))));
    return it;
  }
  SearchRequest request{std::string(description), it.cluster_text, it.parallel, it.features, it.batch,
                        it.memory_limit};
  TSR_ASSIGN_OR_RETURN(StepSearchOptions search, search_options(request));
  TSR_RETURN_IF_ERROR(search_composed(it, config, fleet, search, within));
  if (certified && !it.search->kinds.empty())
    return Status(StatusCode::kUnsupported,
                  format("'{}' has several kinds of devices, and a certificate is of one: give the {} alone, "
                         "which the plan is for, and any other kind in turn",
                         it.cluster_text, it.search->kinds[0].used));
  if (certified && it.search->cut_off)
    return Status(
        StatusCode::kUnsupported,
        format("the search ended after {} configurations with others still open, and a certificate "
               "is of all: pin some of tp, dp, pp, cp or the micro-batch, or leave out 'certificate'",
               it.search->solved));
  request.held = search.features.held;
  if (certified) {
    StepSearchResult last = *it.search;
    last.bound_s = it.own_bound_s;
    last.gap = std::max(0.0, 1 - last.bound_s / last.best.time.step_s);
    it.certificate = certificate_json(request, it.cluster, last);
  }
  if (plan.lora > 0 && !it.search->stage_kinds) {
    const std::vector<std::string> frozen = frozen_reasons(it.model, it.cluster, search, it.search->best);
    it.reasons.insert(it.reasons.begin(), frozen.begin(), frozen.end());
  }
  return it;
}

// Puts the last reason first.
std::vector<std::string> kind_reasons(const StepSearchResult& search) {
  std::vector<std::string> reasons;
  for (size_t i = search.kinds.size(); i-- > 1;) {
    const KindChoice& other = search.kinds[i];
    reasons.push_back(
        std::isfinite(other.step_s)
            ? format("With {} a step would take {} s", other.used, std::round(other.step_s * 1e6) / 1e6)
            : format(std::isfinite(other.bound_s) ? "With {} no plan is faster" : "With {} no plan fits",
                     other.used));
  }
  reasons.push_back(format(
      "The plan is for {}{}{}", search.kinds[0].used,
      search.kinds[0].used.find(" + ") != std::string::npos ? ", each taken for the slowest of them" : "",
      search.kinds[0].idle.empty() ? "" : format("; idle: {}", search.kinds[0].idle)));
  return reasons;
}

Result<Explanation> explain_estimate(std::string_view description, const Estimate& it, bool drawings) {
  ExplainStepOptions options;
  options.global_batch = it.batch;
  options.memory_limit = it.memory_limit;
  options.search = it.search ? &*it.search : nullptr;
  options.timeline = drawings;
  TSR_ASSIGN_OR_RETURN(Explanation explanation, explain_step(it.model, it.cluster, it.found, options));
  if (it.search) explanation.gap = it.gap();
  explanation.subject = std::string(description);
  explanation.reasons.insert(explanation.reasons.begin(), it.reasons.begin(), it.reasons.end());
  explanation.cluster = it.cluster_text;
  explanation.devices = it.devices;
  if (it.search && !it.search->kinds.empty()) {
    std::vector<std::string>& reasons = explanation.reasons;
    for (const std::string& reason : kind_reasons(*it.search)) reasons.insert(reasons.begin(), reason);
  }
  return explanation;
}

}  // namespace

Result<std::string> estimate_page(std::string_view description, const Options& options) {
  TSR_ASSIGN_OR_RETURN(const Estimate it, find_estimate(description, options));
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(description, it, true));
  return explanation_to_page(explanation);
}

Result<std::string> estimate_step(std::string_view description, const Options& options) {
  TSR_ASSIGN_OR_RETURN(const Estimate it, find_estimate(description, options));
  const StepTime& time = it.found.time;
  const ForeignPlan& plan = it.found.plan;
  Json report = {{"model", std::string(description)},
                 {"parameters", it.model.parameters()},
                 {"cluster", it.cluster_text},
                 {"devices", it.devices},
                 {"features", it.features},
                 {"global_batch", it.batch},
                 {"parallel", it.search ? to_text(plan) : it.parallel},
                 {"stages", stages_array(it.found)},
                 {"reserved_bytes", reserved_bytes(it.cluster.kinds[0])}};
  if (it.composed.empty())
    report["composed"] = {{"skipped", it.not_composed}};
  else
    report["composed"] = {
        {"memory_bytes", std::ranges::max(it.composed)}, {"by_device", it.composed}, {"fits", fits(it)}};
  if (!it.lowered.empty()) {
    Json devices = Json::array();
    for (const LoweredDevice& device : it.lowered)
      devices.push_back({{"device", device.device}, {"memory_bytes", device.bytes}});
    report["verified"] = {{"devices", devices}};
  }
  if (!it.reasons.empty()) report["reasons"] = it.reasons;
  if (it.search) {
    if (!it.certificate.is_null()) report["certificate"] = it.certificate;
    if (!it.batch_words.empty())
      report["batch_search"] = {{"range", it.batch_words},
                                {"batches", it.batches},
                                {"sequences_per_second", static_cast<double>(it.batch) / time.step_s},
                                {"bound_sequences_per_second", it.bound_per_s}};
    if (!it.search->kinds.empty()) {
      report["kinds"] = Json::array();
      for (const KindChoice& choice : it.search->kinds) {
        Json one = {{"used", choice.used}, {"idle", choice.idle}};
        if (std::isfinite(choice.step_s)) one["step_seconds"] = choice.step_s;
        if (std::isfinite(choice.bound_s)) one["bound_seconds"] = choice.bound_s;
        report["kinds"].push_back(std::move(one));
      }
    }
    report["gap"] = it.gap();
    report["fastest"] = {{"parallel", to_text(it.search->best.plan)},
                         {"step_seconds", it.search->best.time.step_s}};
    report["bound_seconds"] = it.search->bound_s;
    report["search"] = {{"configurations", it.search->configurations},
                        {"closed_by_bound", it.search->closed_by_bound},
                        {"solved", it.search->solved},
                        {"too_large", it.search->too_large}};
    Json candidates = Json::array();
    for (const FoundStep& step : it.search->runners_up)
      candidates.push_back({{"strategy", to_text(step.plan)},
                            {"step_seconds", step.time.step_s},
                            {"memory_bytes", std::ranges::max(step.memory_bytes)}});
    report["candidates"] = candidates;
  }
  report["micro_batches"] = it.batch / (plan.micro_batch * plan.data());
  report["predicted_step_seconds"] = time.step_s;
  report["tokens_per_second"] = static_cast<double>(it.batch * it.model.T) / time.step_s;
  report["seconds"] = seconds_object(time);
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(description, it, false));
  report["explanation"] = Json::parse(explanation_to_json(explanation));
  return dump(report);
}

}  // namespace tessera
