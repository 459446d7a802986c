// The planner sees only the first entry; if all entries exceed the limit, it is asked for less memory, by the excess,
// doubled at each attempt (plan_within).
#include "engine/program/entry_plans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "engine/base/agreement.h"
#include "engine/base/device_profiles.h"
#include "engine/base/text_file.h"
#include "engine/program/measured_run.h"
#include "engine/program/plan_origin.h"
#include "graph/base/text.h"
#include "graph/device_profile.h"
#include "graph/transform/canonical_order.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/smallest_fit.h"
#include "parallel/planner/min_memory_plan.h"
#include "parallel/planner/plan_attempt.h"
#include "parallel/pricing/device_limit.h"
#include "parallel/strategy/state_plan.h"
#include "parallel/strategy/strategy.h"
#include "runtime/status_message.h"
#include "runtime/transport.h"
#include "text/json.h"

namespace tessera {

GraphToPlan GraphToPlan::create(std::string name, std::shared_ptr<const Graph> graph,
                            const std::vector<std::pair<std::string, int64_t>>& symbols) {
  GraphToPlan made{std::move(name), std::move(graph), {}, false};
  for (const auto& value : symbols)
    for (const Symbol& symbol : made.graph->symbols())
      if (symbol.name == value.first) made.symbols.push_back(value);
  return made;
}

uint64_t profile_of(const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  return cluster.profile != nullptr ? cluster.profile->checksum : 0;
}

Status lower_entries(EntryPlans& planned, const KernelCatalog& catalog, std::optional<RankSet> only) {
  std::vector<EntrySpec> specs;
  for (const PlannedEntry& entry : planned.entries)
    specs.push_back({entry.name, entry.graph.get(), &entry.plan});
  TSR_ASSIGN_OR_RETURN(planned.program, lower(specs, catalog, only));
  return {};
}

int64_t limit_of(const Cluster& cluster, int64_t memory_limit) {
  const int64_t limit = device_limit(cluster, memory_limit);
  return limit == kNoLimit ? 0 : limit;
}

namespace {

constexpr int64_t kLargeLimit = int64_t{1} << 60;
// Largest device count that is tried when the given devices are too few.
constexpr int32_t kMostDevices = 16;

struct PlanRequest {
  std::span<const GraphToPlan> graphs;
  const ComputeSettings& compute;
  int64_t batch;
  uint64_t profile;                     // checksum of the source of the prices
  std::shared_ptr<DeviceSet> measured;  // devices that measure plans to choose one; null: none
  bool any_that_fits = false;           // feasibility only: any plan that fits
  AttemptCache* known = nullptr;       // attempts of the first entry, under other limits
  SearchEffort* effort = nullptr;       // budget of the search
  std::span<const PlannedEntry> followed =
      {};  // entries of another program to follow; empty: all follow the first
};

// Plans all entries once: searches a plan for the first
// under `limit`, or takes `given_plan`; the others follow.
Result<EntryPlans> plan_once(const PlanRequest& request, int64_t limit, const Cluster& cluster,
                             const KernelCatalog& catalog, PlanRefusal* refusal, const Plan* given_plan = nullptr) {
  EntryPlans planned;
  std::vector<PlannedEntry>& entries = planned.entries;
  entries.reserve(request.graphs.size());
  const ComputeSettings& compute = request.compute;
  for (const GraphToPlan& graph : request.graphs) {
    PlanOptions options;
    options.global_batch = request.batch;
    options.symbols = graph.symbols;
    options.memory_limit = limit;
    options.advise = false;  // advice covers all entries together
    PlannedEntry entry{graph.name, graph.graph, {}};
    std::vector<PlannedGraph> before;
    for (const std::span<const PlannedEntry> of : {request.followed, std::span<const PlannedEntry>(entries)})
      for (const PlannedEntry& it : of) before.push_back({it.graph.get(), &it.plan});
    if (entries.empty() && given_plan != nullptr) {
      entry.plan = *given_plan;
      entry.plan.estimate.profile = request.profile;
    } else if (entries.empty() && !compute.plan_text.empty()) {
      TSR_ASSIGN_OR_RETURN(entry.plan, parse_plan_of(compute.plan_text, *graph.graph));
      TSR_RETURN_IF_ERROR(check_followed(entry.plan, *graph.graph, request.batch, graph.symbols));
    } else if (entries.empty() && !compute.plan_file.empty()) {
      TSR_ASSIGN_OR_RETURN(entry.plan, read_plan_file(compute.plan_file, *graph.graph));
      TSR_RETURN_IF_ERROR(check_followed(entry.plan, *graph.graph, request.batch, graph.symbols)
                              .with_context(format("plan '{}'", compute.plan_file)));
    } else if (graph.moves_state_only) {
      TSR_ASSIGN_OR_RETURN(entry.plan,
                           plan_along_state(*graph.graph, graph.symbols, *entries[0].graph, entries[0].plan));
    } else {
      if (before.empty()) {
        options.parallel = compute.parallel;
        options.pins = compute.pins;
        options.any_that_fits = request.any_that_fits;
        options.known = request.known;
        options.effort = request.effort;
        if (request.measured != nullptr && compute.measure > 1) {
          options.finalists = static_cast<int32_t>(compute.measure);
          options.measure = measured_steps(request.measured, graph.graph);
        }
      } else {  // parameters and state stay at the first entry's placement
        options.like = before[0].plan;
        options.like_graph = before[0].graph;
        options.also_like.assign(before.begin() + 1, before.end());
        options.memory_limit = kLargeLimit;  // the limit applies to all entries together
      }
      Result<PlanResult> made = make_plan(*graph.graph, cluster, catalog, options, before.empty() ? refusal : nullptr);
      if (!made.ok()) return made.status().with_context(format("planning '{}'", graph.name));
      entry.plan = std::move(made->plan);
      entry.plan.estimate.profile = request.profile;
      if (entries.empty()) {
        planned.candidates = std::move(made->candidates);
        planned.search = std::move(made->search);
      }
    }
    entries.push_back(std::move(entry));
  }
  TSR_RETURN_IF_ERROR(lower_entries(planned, catalog));
  return planned;
}

// Plans entries that fit together. The planner sees only the first
// entry; if all exceed the limit, it is asked for a plan that uses
// less by the excess, doubled at each attempt. At last the smallest
// plan is taken. Returns a plan that fits, or the smallest found.
Result<EntryPlans> plan_within(const PlanRequest& given, int64_t limit, const Cluster& cluster,
                               const KernelCatalog& catalog) {
  constexpr int kAttempts = 5;
  AttemptCache known;
  PlanRequest request = given;
  request.known = &known;
  int64_t asked = limit;
  PlanRefusal refusal;
  if (limit == 0) return plan_once(request, 0, cluster, catalog, nullptr);
  for (int attempt = 0; attempt < kAttempts && asked > 0; ++attempt) {
    Result<EntryPlans> planned = plan_once(request, asked, cluster, catalog, &refusal);
    if (!planned.ok()) {
      const bool too_large = planned.status().code() == StatusCode::kOutOfMemory;
      // If the first entry does not fit alone, the entries do not fit together.
      if (!too_large || (attempt == 0 && (refusal.least_limit == 0 || request.any_that_fits))) return planned;
      break;
    }
    const int64_t over = planned->largest_limited_bytes(cluster) - limit;
    if (over <= 0 || request.compute.has_given_plan()) return planned;
    const std::vector<int64_t>& alone = planned->entries[0].plan.estimate.arena_bytes;
    if (!alone.empty()) asked = std::min(asked, std::ranges::max(alone));
    asked -= over << attempt;
  }
  PlanRequest smallest = request;
  smallest.any_that_fits = false;
  if (refusal.least_limit == 0) {  // failed before any plan was found too large
    const Result<EntryPlans> refused = plan_once(smallest, 1, cluster, catalog, &refusal);
    if (refused.ok() || refusal.least_limit == 0) return refused;
  }
  if (!refusal.smallest) return plan_once(smallest, refusal.least_limit, cluster, catalog, nullptr);
  Result<EntryPlans> planned = plan_once(smallest, refusal.least_limit, cluster, catalog, nullptr, &*refusal.smallest);
  if (!planned.ok() || given.any_that_fits) return planned;
  if (planned->largest_limited_bytes(cluster) > limit) {
    if (refusal.is_excluded) return planned;  // a bound excludes any smaller limit too
    // Plans with an equal first entry may differ in the others.
    // The unlimited search bounds the answer for smaller limits.
    PlanRefusal other;
    if (plan_once(smallest, 1, cluster, catalog, &other).ok() || !other.smallest) return planned;
    Result<EntryPlans> bounded = plan_once(smallest, other.least_limit, cluster, catalog, nullptr, &*other.smallest);
    if (!bounded.ok() || bounded->largest_limited_bytes(cluster) >= planned->largest_limited_bytes(cluster)) return planned;
    planned = std::move(bounded);
    refusal = std::move(other);
    if (planned->largest_limited_bytes(cluster) > limit) return planned;
  }
  // Searches again under that limit, so that the gap and the alternatives are known.
  Result<EntryPlans> searched = plan_once(smallest, refusal.least_limit, cluster, catalog, nullptr);
  if (searched.ok() && searched->largest_limited_bytes(cluster) <= limit) return searched;
  return planned;
}

// Options of the first entry's search that determine its space.
PlanOptions options_of_first(const PlanRequest& request, int64_t limit) {
  PlanOptions options;
  options.global_batch = request.batch;
  options.symbols = request.graphs[0].symbols;
  options.memory_limit = limit;
  options.parallel = request.compute.parallel;
  options.pins = request.compute.pins;
  return options;
}

// The error for plans that are too large.
Status refuse_entries(const PlanRequest& request, int64_t limit, const EntryPlans& smallest, const Cluster& cluster) {
  const auto fullest = std::ranges::max_element(smallest.program.ranks, {}, &RankProgram::arena_bytes);
  std::vector<std::string> names;
  for (const GraphToPlan& graph : request.graphs) names.push_back(graph.name);
  return nothing_fits({.entries = " for " + join(names, " and "),
                       .given = limit,
                       .bytes = smallest.largest_limited_bytes(cluster),
                       .strategy = smallest.entries[0].plan.strategy,
                       .more = "Its peak: " + fullest->peak});
}

}  // namespace

Status with_device_advice(const Status& refused, std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                          int64_t batch, const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  const int64_t limit = limit_of(cluster, compute.memory_limit);
  const DeviceCounts counts{static_cast<int32_t>(cluster.devices.size()), kMostDevices, compute.parallel.empty()};
  if (compute.has_given_plan() || !refused.number("smallest_limit_bytes") || counts.given >= counts.most)
    return refused;
  HeldFactors factors;
  SearchEffort effort = kAdviceEffort;
  std::map<int32_t, LikelyFit> likely_fits;
  PlanRequest request{graphs, compute, batch, profile_of(devices), nullptr};  // absent devices cannot measure plans
  request.any_that_fits = true;
  request.effort = &effort;
  const auto likely = [&](int32_t count) -> Result<Fit> {
    PlanOptions options = options_of_first(request, limit);
    options.factors = &factors;
    options.effort = &effort;
    TSR_ASSIGN_OR_RETURN(
        LikelyFit it, likely_fit(*graphs[0].graph, with_devices(cluster, count), devices.catalog(), options));
    const Fit fit = it.fit;
    likely_fits.insert_or_assign(count, std::move(it));
    return fit;
  };
  const auto fits = [&](int32_t count) -> Result<std::optional<bool>> {
    const Cluster larger = with_devices(cluster, count);
    if (const auto at = likely_fits.find(count); at != likely_fits.end() && at->second.plan) {
      if (at->second.instructions > kAdviceEffort.left) return std::optional<bool>();
      const Result<EntryPlans> planned =
          plan_once(request, limit, larger, devices.catalog(), nullptr, &*at->second.plan);
      if (planned.ok() && planned->largest_limited_bytes(larger) <= limit) return std::optional(true);
    }
    if (effort.left <= 0) return std::optional<bool>();
    const Result<EntryPlans> planned = plan_within(request, limit, larger, devices.catalog());
    // The strategy may fix another number of devices.
    const bool does = planned.ok() && planned->largest_limited_bytes(larger) <= limit;
    if (!does && effort.left <= 0) return std::optional<bool>();
    return std::optional(does);
  };
  const Result<MinDeviceCount> found = find_min_device_count(counts, likely, fits);
  return found.ok() ? with_device_count(refused, *found, counts) : refused;
}

namespace {

Result<EntryPlans> plan_here(std::span<const GraphToPlan> graphs, const ComputeSettings& compute, int64_t batch,
                             const std::shared_ptr<DeviceSet>& shared) {
  const DeviceSet& devices = *shared;
  const Cluster cluster = devices.cluster();
  const int64_t limit = limit_of(cluster, compute.memory_limit);
  const PlanRequest request{graphs, compute, batch, profile_of(devices), shared};
  TSR_ASSIGN_OR_RETURN(EntryPlans planned, plan_within(request, limit, cluster, devices.catalog()));
  if (limit > 0 && planned.largest_limited_bytes(cluster) > limit) {
    if (!compute.has_given_plan()) return refuse_entries(request, limit, planned, cluster);
    const int64_t largest = planned.largest_limited_bytes(cluster);
    return Status(
               StatusCode::kOutOfMemory,
               format("the plan '{}' needs {} bytes ({}) on a device, the memory limit is {} bytes ({}); "
                      "peak: {}",
                      planned.entries[0].plan.strategy, largest, bytes_text(largest), limit,
                      bytes_text(limit),
                      std::ranges::max_element(planned.program.ranks, {}, &RankProgram::arena_bytes)->peak))
        .with_number("needed_bytes", largest)
        .with_number("limit_bytes", limit);
  }
  if (compute.tune) {
    TSR_RETURN_IF_ERROR(keep_fastest_algorithms(planned.program, *shared).with_context("option 'tune'"));
    TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog()));
  }
  return planned;
}

// Texts of the plans, which the first process sends to the others.
std::string plan_texts(const EntryPlans& planned) {
  Json plans = Json::array();
  for (const PlannedEntry& entry : planned.entries) plans.push_back(print(entry.plan, *entry.graph));
  return dump(plans);
}

Result<EntryPlans> plans_of_texts(const std::string& text, std::span<const GraphToPlan> graphs, int64_t batch) {
  TSR_ASSIGN_OR_RETURN(const Json plans, parse_json(text, "the first process' plan", text.size()));
  if (plans.size() != graphs.size())
    return Status(StatusCode::kFailedPrecondition, format("the first process has {} entry points, this one {}: start all with the same options",
                                                          plans.size(), graphs.size()));
  EntryPlans planned;
  for (size_t i = 0; i < graphs.size(); ++i) {
    Result<Plan> plan = parse_plan_of(plans[i].get<std::string>(), *graphs[i].graph);
    if (!plan.ok())
      return Status(StatusCode::kFailedPrecondition,
                    format("the plan of the first process does not fit this one: {}; start all with the same model and options", plan.status().message()));
    if (i == 0) TSR_RETURN_IF_ERROR(check_followed(*plan, *graphs[0].graph, batch, graphs[0].symbols));
    planned.entries.push_back({graphs[i].name, graphs[i].graph, std::move(*plan)});
  }
  return planned;
}

}  // namespace

Result<EntryPlans> plan_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                int64_t batch, const std::shared_ptr<DeviceSet>& devices) {
  Channel* const channel = devices->channel();
  if (channel == nullptr) return plan_here(graphs, compute, batch, devices);
  if (compute.tune || compute.measure > 1)
    return Status(StatusCode::kUnsupported, "options 'tune' and 'measure' run a plan in one process: make the plan there first, "
                                            "and give it as option 'plan_file'");
  const bool is_first = channel->transport().process() == 0;
  std::optional<Result<EntryPlans>> made;
  if (is_first) made = plan_here(graphs, compute, batch, devices);
  TSR_ASSIGN_OR_RETURN(const std::string refusal, channel->broadcast_text(0, is_first ? to_message(made->status()) : ""));
  TSR_RETURN_IF_ERROR(status_of_message(refusal));
  TSR_ASSIGN_OR_RETURN(const std::string plans, channel->broadcast_text(0, is_first ? plan_texts(**made) : ""));
  if (!is_first) made = plans_of_texts(plans, graphs, batch);
  Status status = made->status();
  if (status.ok()) status = lower_entries(**made, devices->catalog(), devices->ranks());
  TSR_RETURN_IF_ERROR(agree(channel, status));
  return std::move(*made);
}

Result<int64_t> least_bytes_of_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                       int64_t batch, const DeviceSet& devices) {
  if (compute.has_given_plan()) return 0;
  const PlanRequest request{graphs, compute, batch, 0, nullptr};
  return least_bytes_of_plans(*graphs[0].graph, devices.cluster(), devices.catalog(), options_of_first(request, 0));
}

Result<EntryPlans> plan_entries_along(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                      std::span<const PlannedEntry> followed, const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  const PlanRequest request{.graphs = graphs,
                            .compute = compute,
                            .batch = 1,
                            .profile = profile_of(devices),
                            .measured = nullptr,
                            .followed = followed};
  TSR_ASSIGN_OR_RETURN(EntryPlans planned, plan_once(request, kLargeLimit, cluster, devices.catalog(), nullptr));
  const int64_t limit = limit_of(cluster, compute.memory_limit),
                needed = planned.largest_limited_bytes(cluster);
  if (limit == 0 || needed <= limit) return planned;
  return Status(StatusCode::kOutOfMemory,
                format("it takes {} bytes of a device with its weights, {} are left", needed, limit))
      .with_number("needed_bytes", needed)
      .with_number("limit_bytes", limit);
}

Result<Graph> graph_of_plan(const Plan& plan, const Graph& given) {
  TSR_ASSIGN_OR_RETURN(Graph ordered, in_canonical_order(given));
  if (plan.graph_fingerprint == ordered.fingerprint()) return ordered;
  if (plan.graph_fingerprint == given.fingerprint()) return given;
  return Status(StatusCode::kInvalidArgument,
                format("the plan is of graph {}, this graph is {}: make the plan again from the same graph",
                       plan.graph_fingerprint, ordered.fingerprint()));
}

Result<Plan> parse_plan_of(std::string_view text, const Graph& graph) {
  TSR_RETURN_IF_ERROR(check_plan_graph(text, graph));
  Result<Plan> plan = parse_plan(text, graph);
  if (!plan.ok() || plan->graph_fingerprint == graph.fingerprint()) return plan;
  return Status(StatusCode::kInvalidArgument,
                format("it is of graph {}, this graph is {}: make the plan again from the same model and options",
                       plan->graph_fingerprint, graph.fingerprint()));
}

Result<Plan> read_plan_file(const std::string& path, const Graph& graph) {
  TSR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "plan", kMostPlanBytes));
  Result<Plan> plan = parse_plan_of(text, graph);
  if (!plan.ok()) return plan.status().with_context(format("plan '{}'", path));
  return plan;
}

Status check_followed(const Plan& plan, const Graph& graph, int64_t batch,
                      const std::vector<std::pair<std::string, int64_t>>& symbols) {
  const auto wrong = [&](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  std::vector<int32_t> devices;
  for (const Stage& stage : plan.stages)
    devices.insert(devices.end(), stage.mesh.devices.begin(), stage.mesh.devices.end());
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  const auto words = parse_parallel(plan.strategy);
  if (words.ok() && words->spec.devices() != static_cast<int32_t>(devices.size()))
    return wrong(format("its strategy '{}' is for {} devices, its meshes have {}", plan.strategy,
                        words->spec.devices(), devices.size()));
  const bool has_batch =
      std::ranges::any_of(graph.symbols(), [](const Symbol& symbol) { return symbol.name == "B"; });
  if (has_batch && plan.global_batch != batch)
    return wrong(format("it is for a batch of {}, {} is asked for: make the plan again with these options",
                        plan.global_batch, batch));
  for (const auto& [name, value] : symbols)
    for (const auto& [planned, planned_value] : plan.symbols)
      if (name == planned && name != "B" && value != planned_value)
        return wrong(format("it is for {} = {}, {} is asked for: make the plan again with these options", name,
                            planned_value, value));
  return {};
}

Status check_promise(const Plan& plan, const Program& program) {
  const std::vector<int64_t>& promised = plan.estimate.arena_bytes;
  if (promised.empty()) return {};
  if (std::ssize(promised) != program.rank_set().world)
    return Status(StatusCode::kInvalidArgument,
                  format("its estimate is of {} devices, its program runs on {}", promised.size(),
                         program.rank_set().world));
  for (size_t at = 0; at < program.ranks.size(); ++at)
    if (const int32_t rank = program.rank_of(at); promised[static_cast<size_t>(rank)] != program.ranks[at].arena_bytes)
      return Status(StatusCode::kInvalidArgument,
                    format("it promises {} bytes on device {}, its program takes {}: it was changed since it "
                           "was made; take out its line 'estimate' to run it as it is now",
                           promised[static_cast<size_t>(rank)], rank, program.ranks[at].arena_bytes));
  return {};
}

}  // namespace tessera
