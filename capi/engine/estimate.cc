#include "capi/engine/estimate.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "capi/engine/certificate.h"
#include "capi/engine/json.h"
#include "graph/base/text.h"
#include "parallel/analytic/frozen_reasons.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_search.h"
#include "parallel/analytic/step_time.h"
#include "parallel/cluster_presets.h"
#include "serialize/cluster_json.h"

namespace tessera {

Result<Cluster> open_cluster(const std::string& text) {
  if (!text.ends_with(".json")) return cluster_preset(text);
  std::ifstream file(text, std::ios::binary);
  if (!file)
    return Status(StatusCode::kNotFound,
                  format("cluster file '{}' cannot be opened; wanted a JSON file, or a "
                         "preset such as dgx-a100-80gb:512",
                         text));
  std::ostringstream content;
  content << file.rdbuf();
  Result<Cluster> cluster = cluster_from_json(content.str());
  if (!cluster.ok()) return cluster.status().with_context(format("cluster file '{}'", text));
  return cluster;
}

namespace {

Json seconds_object(const StepTime& time) {
  return {{"compute", time.compute_s - time.recompute_s},
          {"recompute", time.recompute_s},
          {"communication", time.communication_s},
          {"bubble", time.bubble_s},
          {"gradients", time.gradients_s},
          {"update", time.update_s}};
}

// Names of the words given, to tell what is pinned.
std::set<std::string> names_of(std::string_view words) {
  std::set<std::string> names;
  for (const std::string& word : split(words, ',')) names.emplace(trim(word.substr(0, word.find('='))));
  names.erase("");
  return names;
}

Json stages_array(const FoundStep& found) {
  Json stages = Json::array();
  for (size_t device = 0; device < found.memory_bytes.size(); ++device) {
    StageBlocks whole;
    for (size_t v = device; v < found.stages.size(); v += found.memory_bytes.size()) {
      whole.blocks += found.stages[v].blocks;
      whole.full += found.stages[v].full;
      whole.selective += found.stages[v].selective;
    }
    stages.push_back({{"blocks", whole.blocks},
                      {"recomputed", whole.full},
                      {"recomputed_selectively", whole.selective},
                      {"memory_bytes", found.memory_bytes[device]}});
  }
  return stages;
}

// What a plan that is priced as given holds.
FoundStep as_found(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                   int64_t batch) {
  FoundStep found;
  found.plan = plan;
  found.stages = even_stages(model, plan);
  const StageTimes times(model, plan, cluster);
  for (int32_t device = 0; device < plan.pp; ++device) {
    StageBlocks whole;
    for (size_t v = static_cast<size_t>(device); v < found.stages.size(); v += static_cast<size_t>(plan.pp)) {
      whole.blocks += found.stages[v].blocks;
      whole.full += found.stages[v].full;
      whole.selective += found.stages[v].selective;
    }
    found.memory_bytes.push_back(times.memory_bytes(
        whole, device == 0, holds_head(plan, device),
        in_flight(plan, device, batch / (plan.micro_batch * plan.data())), plan.virtual_stages));
  }
  return found;
}

}  // namespace

Result<StepSearchOptions> search_options(const SearchRequest& request) {
  TSR_ASSIGN_OR_RETURN(const ForeignPlan plan, parse_foreign_plan(request.parallel, request.features));
  const std::set<std::string> pinned = names_of(request.parallel), flags = names_of(request.features);
  StepSearchOptions search;
  search.global_batch = request.batch;
  search.memory_limit = request.memory_limit;
  search.features = plan;
  search.pin_sequence_parallel = pinned.contains("sp") || flags.contains("sp");
  if (pinned.contains("tp")) search.tp = plan.tp;
  if (pinned.contains("dp")) search.dp = plan.dp;
  if (pinned.contains("pp")) search.pp = plan.pp;
  for (const std::string& word : split(request.parallel, ','))
    if (trim(word).starts_with("pp=") && word.find(':') != std::string::npos)
      search.virtual_stages = plan.virtual_stages, search.schedule = plan.schedule;
  // The whole space; what slows plans down to save memory only where asked for, or where nothing fits
  // without.
  search.wide = true;
  if (pinned.contains("cp")) search.cp = plan.cp;
  if (pinned.contains("ep")) search.ep = plan.ep;
  search.shard = request.parallel.find("shard=auto") != std::string::npos;
  search.offload = request.parallel.find("offload=auto") != std::string::npos;
  if (pinned.contains("zero")) search.zero = plan.zero;
  if (pinned.contains("mb")) search.micro_batch = plan.micro_batch;
  if (pinned.contains("recompute")) search.recompute = plan.recompute;
  return search;
}

Result<std::string> estimate_step(std::string_view description, const Options& options) {
  OptionReader reader(options, "estimate");
  const std::string cluster_text = reader.text("cluster");
  const int64_t batch = reader.i64("batch", 8, 1, int64_t{1} << 32);
  const std::string parallel = reader.text("parallel"), features = reader.text("features");
  const int64_t memory_limit = reader.bytes("memory_limit", 0);
  const bool certified = reader.i64("certificate", 0, 0, 1) == 1;
  if (cluster_text.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "estimate: option 'cluster' is missing; an example: dgx-a100-80gb:512"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(description));
  TSR_ASSIGN_OR_RETURN(const TransformerShape model, transformer_shape(config));
  TSR_ASSIGN_OR_RETURN(const Cluster cluster, open_cluster(cluster_text));
  TSR_ASSIGN_OR_RETURN(ForeignPlan plan, parse_foreign_plan(parallel, features));
  Json report = {{"model", std::string(description)},
                 {"parameters", model.parameters()},
                 {"cluster", cluster_text},
                 {"devices", cluster.devices.size()},
                 {"features", features},
                 {"global_batch", batch}};
  StepTime time;
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  const bool complete =
      static_cast<int64_t>(plan.tp) * plan.dp * plan.pp * plan.cp * plan.ep == devices && !parallel.empty();
  if (complete) {
    if (certified)
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' is priced as it is, and a search is what a certificate certifies: leave out "
                           "tp, dp or pp, or 'certificate'",
                           parallel));
    TSR_ASSIGN_OR_RETURN(time, step_time(model, plan, cluster, batch));
    report["parallel"] = parallel;
    report["stages"] = stages_array(as_found(model, plan, cluster, batch));
  } else {
    const SearchRequest request{
        std::string(description), cluster_text, parallel, features, batch, memory_limit};
    TSR_ASSIGN_OR_RETURN(StepSearchOptions search, search_options(request));
    if (certified) {
      if (plan.schedule == ForeignSchedule::kGpipe || plan.splits_backward() || search.shard ||
          search.offload)
        return Status(StatusCode::kUnsupported,
                      "certificates tell of 1f1b and interleaved pipelines without sharding by operator or "
                      "offload: leave those out of 'parallel', or 'certificate'");
      search.wide = false;
    }
    TSR_ASSIGN_OR_RETURN(const StepSearchResult found, search_step(model, cluster, search));
    if (certified) report["certificate"] = certificate_json(request, cluster, found);
    if (plan.lora > 0) report["reasons"] = frozen_reasons(model, cluster, search, found.best);
    time = found.best.time;
    plan = found.best.plan;
    report["parallel"] = to_text(plan);
    report["stages"] = stages_array(found.best);
    report["gap"] = found.gap;
    report["bound_seconds"] = found.bound_s;
    report["search"] = {{"configurations", found.configurations},
                        {"closed_by_bound", found.closed_by_bound},
                        {"solved", found.solved},
                        {"too_large", found.too_large}};
    Json candidates = Json::array();
    for (const FoundStep& step : found.runners_up)
      candidates.push_back({{"strategy", to_text(step.plan)},
                            {"step_seconds", step.time.step_s},
                            {"memory_bytes", std::ranges::max(step.memory_bytes)}});
    report["candidates"] = candidates;
  }
  report["micro_batches"] = batch / (plan.micro_batch * plan.data());
  report["predicted_step_seconds"] = time.step_s;
  report["tokens_per_second"] = static_cast<double>(batch * model.T) / time.step_s;
  report["seconds"] = seconds_object(time);
  return dump(report);
}

}  // namespace tessera
