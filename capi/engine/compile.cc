#include "capi/engine/compile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "capi/engine/device_profiles.h"
#include "capi/engine/measured_steps.h"
#include "capi/engine/rewrite.h"
#include "graph/base/text.h"
#include "graph/device_profile.h"
#include "graph/transform/bf16_parameters.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/decoding.h"
#include "graph/transform/fused_loss.h"
#include "graph/transform/precision.h"
#include "graph/transform/tf32_products.h"
#include "graph/transform/weight_storage.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/fewest_devices.h"
#include "parallel/planner/plan_attempt.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/strategy.h"

namespace tessera {
namespace {

using SymbolValues = std::vector<std::pair<std::string, int64_t>>;

struct GraphToPlan {
  std::string name;
  std::shared_ptr<const Graph> graph;
  SymbolValues symbols;
};

// Those that the graph has.
SymbolValues symbols_of(const Graph& graph, const SymbolValues& values) {
  SymbolValues kept;
  for (const auto& value : values)
    for (const Symbol& symbol : graph.symbols())
      if (symbol.name == value.first) kept.push_back(value);
  return kept;
}

// Checksum of what the prices come from.
uint64_t profile_of(const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  return cluster.profile != nullptr ? cluster.profile->checksum : 0;
}

Result<Plan> read_plan_file(const std::string& path, const Graph& graph) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Status(StatusCode::kNotFound, format("cannot open plan '{}': {}", path, std::strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  Result<Plan> plan = parse_plan(text.str(), graph);
  if (!plan.ok()) return plan.status().with_context(format("plan '{}'", path));
  if (plan->graph_fingerprint != graph.fingerprint())
    return Status(
        StatusCode::kInvalidArgument,
        format("plan '{}' is of graph {}, this graph is {}: make the plan again from the same model and "
               "options",
               path, plan->graph_fingerprint, graph.fingerprint()));
  return plan;
}

// What a plan from a file says in two places must agree, and it must be of what is asked for.
Status check_followed(const Plan& plan, const Graph& graph, int64_t batch, const SymbolValues& symbols) {
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
    return wrong(format("it is for a batch of {}, {} is asked for", plan.global_batch, batch));
  for (const auto& [name, value] : symbols)
    for (const auto& [planned, planned_value] : plan.symbols)
      if (name == planned && name != "B" && value != planned_value)
        return wrong(format("it is for {} = {}, {} is asked for", name, planned_value, value));
  return {};
}

// The bytes that it promises are those of its program, unless it was changed since.
Status check_promise(const Plan& plan, const Program& program) {
  const std::vector<int64_t>& promised = plan.estimate.arena_bytes;
  if (promised.empty()) return {};
  if (promised.size() != program.ranks.size())
    return Status(StatusCode::kInvalidArgument,
                  format("its estimate is of {} devices, its program runs on {}", promised.size(),
                         program.ranks.size()));
  for (size_t rank = 0; rank < promised.size(); ++rank)
    if (promised[rank] != program.ranks[rank].arena_bytes)
      return Status(StatusCode::kInvalidArgument,
                    format("it promises {} bytes on device {}, its program takes {}: it was changed since it "
                           "was made; take out its line 'estimate' to run it as it is now",
                           promised[rank], rank, program.ranks[rank].arena_bytes));
  return {};
}

// A plan may leave devices idle: it then says so by an arena of nothing for them, and they run programs of
// nothing.
void add_idle_ranks(Program& program, const Plan& plan, int32_t devices) {
  if (plan.estimate.arena_bytes.size() != static_cast<size_t>(devices)) return;
  const auto busy =
      std::ranges::find_if(program.ranks, [](const RankProgram& rank) { return !rank.entries.empty(); });
  if (busy == program.ranks.end()) return;
  RankProgram idle;
  for (const EntryPoint& entry : busy->entries) idle.entries.push_back({entry.name, {}, {}, {}});
  for (RankProgram& rank : program.ranks)
    if (rank.entries.empty()) rank = idle;
  while (program.ranks.size() < static_cast<size_t>(devices)) program.ranks.push_back(idle);
}

// What was planned for some entries, and the program that it comes to.
struct Planned {
  std::vector<PlannedEntry> entries;
  std::vector<Candidate> candidates;
  PlanSearch search;
  Program program;

  int64_t largest_arena() const {
    int64_t largest = 0;
    for (const RankProgram& rank : program.ranks) largest = std::max(largest, rank.arena_bytes);
    return largest;
  }
};

Status lower_entries(Planned& planned, const KernelCatalog& catalog) {
  std::vector<EntrySpec> specs;
  for (const PlannedEntry& entry : planned.entries)
    specs.push_back({entry.name, entry.graph.get(), &entry.plan});
  TSR_ASSIGN_OR_RETURN(planned.program, lower(specs, catalog));
  return {};
}

// 0: none.
int64_t limit_of(const Cluster& cluster, int64_t memory_limit) {
  if (memory_limit > 0) return memory_limit;
  int64_t least = 0;
  for (const int32_t kind : cluster.devices)
    if (const int64_t own = cluster.kinds[static_cast<size_t>(kind)].memory_bytes; own > 0)
      least = least == 0 ? own : std::min(least, own);
  return least;
}

Result<Compiled> compiled_from(Planned planned, const DeviceSet& devices, bool trace = false,
                               int64_t memory_limit = 0) {
  std::vector<PlannedEntry>& entries = planned.entries;
  Compiled compiled;
  compiled.program = std::move(planned.program);
  add_idle_ranks(compiled.program, entries[0].plan, devices.size());
  if (static_cast<int32_t>(compiled.program.ranks.size()) != devices.size())
    return Status(StatusCode::kInvalidArgument,
                  format("the plan '{}' is for {} devices, '{}' has {}", entries[0].plan.strategy,
                         compiled.program.ranks.size(), devices.text(), devices.size()));
  auto record = std::make_shared<PlanRecord>();
  for (int32_t rank = 0; rank < devices.size(); ++rank) {
    const RankProgram& program = compiled.program.ranks[static_cast<size_t>(rank)];
    record->devices.push_back(
        {devices.device_name(rank), program.arena_bytes, program.max_live_bytes, program.peak});
  }
  if (trace) {
    TSR_ASSIGN_OR_RETURN(const Simulation simulation,
                         simulate(compiled.program, entries[0].name, devices.cluster()));
    record->predicted_trace = trace_of(compiled.program, simulation);
  }
  record->cluster = devices.cluster();
  record->devices_text = devices.text();
  record->memory_limit = limit_of(record->cluster, memory_limit);
  record->entries = std::move(entries);
  record->candidates = std::move(planned.candidates);
  record->search = std::move(planned.search);
  compiled.record = std::move(record);
  return compiled;
}

Status check_host_memory(const Compiled& compiled, int64_t limit) {
  int64_t needed = 0;
  for (const RankProgram& rank : compiled.program.ranks) needed += rank.host_arena_bytes;
  if (limit == 0 || needed <= limit) return {};
  return Status(
      StatusCode::kOutOfMemory,
      format("the plan '{}' keeps {} bytes ({}) in host memory, the limit is {} bytes ({}): raise it, or "
             "offload to a file",
             compiled.record->entries[0].plan.strategy, needed, bytes_text(needed), limit,
             bytes_text(limit)));
}

constexpr int64_t kNoLimit = int64_t{1} << 60;

struct PlanRequest {
  std::span<const GraphToPlan> graphs;
  const ComputeSettings& compute;
  int64_t batch;
  uint64_t profile;                     // checksum of what the prices come from
  std::shared_ptr<DeviceSet> measured;  // where plans are run to choose between them; null: nowhere
  bool any_that_fits = false;           // whether one fits is the question, not which is the fastest
  KnownAttempts* known = nullptr;       // of the first entry, under other limits
};

// What would do where the first entry does not fit.
struct LeastFound {
  int64_t limit = 0;         // the smallest
  std::optional<Plan> plan;  // with it
};

// With `limit` for the first entry, which alone is searched, or is `settled`; the others follow it.
Result<Planned> plan_once(const PlanRequest& request, int64_t limit, const Cluster& cluster,
                          const KernelCatalog& catalog, LeastFound* least, const Plan* settled = nullptr) {
  Planned planned;
  std::vector<PlannedEntry>& entries = planned.entries;
  entries.reserve(request.graphs.size());
  const ComputeSettings& compute = request.compute;
  for (const GraphToPlan& graph : request.graphs) {
    PlanOptions options;
    options.global_batch = request.batch;
    options.symbols = graph.symbols;
    options.memory_limit = limit;
    options.advise = false;  // that is for all entries together
    PlannedEntry entry{graph.name, graph.graph, {}};
    if (entries.empty() && settled != nullptr) {
      entry.plan = *settled;
      entry.plan.estimate.profile = request.profile;
    } else if (entries.empty() && !compute.plan_file.empty()) {
      TSR_ASSIGN_OR_RETURN(entry.plan, read_plan_file(compute.plan_file, *graph.graph));
      TSR_RETURN_IF_ERROR(check_followed(entry.plan, *graph.graph, request.batch, graph.symbols)
                              .with_context(format("plan '{}'", compute.plan_file)));
    } else {
      if (entries.empty()) {
        options.parallel = compute.parallel;
        options.pins = compute.pins;
        if (least != nullptr) options.least_limit = &least->limit, options.smallest = &least->plan;
        options.any_that_fits = request.any_that_fits;
        options.known = request.known;
        if (request.measured != nullptr && compute.measure > 1) {
          options.finalists = static_cast<int32_t>(compute.measure);
          options.measure = measured_steps(request.measured, graph.graph);
        }
      } else {  // parameters and state stay where the first entry has them
        options.like = &entries[0].plan;
        options.like_graph = entries[0].graph.get();
        options.memory_limit = kNoLimit;  // what all come to together is what counts
      }
      Result<PlanResult> made = make_plan(*graph.graph, cluster, catalog, options);
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

// The planner sees the first entry alone; when the others make the arena larger than the limit, it is asked
// again for a plan of which as much less is used: the same plan would come back for a limit that is merely
// smaller. In the end it leaves them as much room as it can. What comes back fits, or is the smallest that
// was found.
Result<Planned> plan_within(const PlanRequest& given, int64_t limit, const Cluster& cluster,
                            const KernelCatalog& catalog) {
  constexpr int kAttempts = 5;
  KnownAttempts known;
  PlanRequest request = given;
  request.known = &known;
  int64_t asked = limit;
  LeastFound least;
  if (limit == 0) return plan_once(request, 0, cluster, catalog, nullptr);
  for (int attempt = 0; attempt < kAttempts && asked > 0; ++attempt) {
    Result<Planned> planned = plan_once(request, asked, cluster, catalog, &least);
    if (!planned.ok()) {
      const bool too_large = planned.status().code() == StatusCode::kOutOfMemory;
      // Where the first entry alone does not fit, all together do not.
      if (!too_large || (attempt == 0 && (least.limit == 0 || request.any_that_fits))) return planned;
      break;
    }
    const int64_t over = planned->largest_arena() - limit;
    if (over <= 0 || !request.compute.plan_file.empty()) return planned;
    const std::vector<int64_t>& alone = planned->entries[0].plan.estimate.arena_bytes;
    if (!alone.empty()) asked = std::min(asked, std::ranges::max(alone));
    asked -= over << attempt;
  }
  PlanRequest smallest = request;
  smallest.any_that_fits = false;
  if (least.limit == 0) {  // asked in vain before anything was found too large
    const Result<Planned> refused = plan_once(smallest, 1, cluster, catalog, &least);
    if (refused.ok() || least.limit == 0) return refused;
  }
  if (least.plan) {
    Result<Planned> planned = plan_once(smallest, least.limit, cluster, catalog, nullptr, &*least.plan);
    // A plan that is of use has been searched for: its gap and what else there is are known.
    if (!planned.ok() || planned->largest_arena() > limit || given.any_that_fits) return planned;
  }
  return plan_once(smallest, least.limit, cluster, catalog, nullptr);
}

// What would do, in place of a plan that is too large.
Status nothing_fits(const PlanRequest& request, int64_t limit, const Planned& smallest,
                    const Cluster& cluster, const KernelCatalog& catalog) {
  const auto given = static_cast<int32_t>(cluster.devices.size());
  constexpr int32_t kMostDevices = 16;
  PlanRequest priced = request;  // on devices that are not there nothing is run
  priced.measured = nullptr;
  priced.any_that_fits = true;
  const auto fits = [&](int32_t count) -> Result<bool> {
    Cluster larger = cluster;
    larger.devices.resize(static_cast<size_t>(count), cluster.devices.back());
    const Result<Planned> planned = plan_within(priced, limit, larger, catalog);
    // Words may ask for another number of devices.
    if (!planned.ok()) return false;
    return planned->largest_arena() <= limit;
  };
  std::string advice;
  if (given < kMostDevices && request.compute.plan_file.empty()) {
    const Result<std::optional<int32_t>> fewest =
        fewest_devices(given, kMostDevices, request.compute.parallel.empty(), fits);
    if (fewest.ok() && *fewest)
      advice = format(". The smallest number of devices that would do is {}", **fewest);
    else
      advice = format(". Up to {} devices would not do either", kMostDevices);
  }
  const auto fullest = std::ranges::max_element(smallest.program.ranks, {}, &RankProgram::arena_bytes);
  std::vector<std::string> names;
  for (const GraphToPlan& graph : request.graphs) names.push_back(graph.name);
  const int64_t bytes = smallest.largest_arena();
  return Status(StatusCode::kOutOfMemory,
                format("no plan for {} fits {} a device; the smallest limit that works is {} ({} bytes) with "
                       "'{}'. Its peak: {}{}",
                       join(names, " and "), bytes_text(limit), bytes_text(bytes), bytes,
                       smallest.entries[0].plan.strategy, fullest->peak, advice));
}

Result<Compiled> plan_all(std::span<const GraphToPlan> graphs, const ComputeSettings& compute, int64_t batch,
                          const std::shared_ptr<DeviceSet>& shared) {
  const DeviceSet& devices = *shared;
  const Cluster cluster = devices.cluster();
  const int64_t limit = limit_of(cluster, compute.memory_limit);
  const PlanRequest request{graphs, compute, batch, profile_of(devices), shared};
  TSR_ASSIGN_OR_RETURN(Planned planned, plan_within(request, limit, cluster, devices.catalog()));
  if (limit > 0 && planned.largest_arena() > limit) {
    if (compute.plan_file.empty()) return nothing_fits(request, limit, planned, cluster, devices.catalog());
    const int64_t largest = planned.largest_arena();
    return Status(
        StatusCode::kOutOfMemory,
        format("the plan '{}' needs {} bytes ({}) on a device, the memory limit is {} bytes ({}); peak: {}",
               planned.entries[0].plan.strategy, largest, bytes_text(largest), limit, bytes_text(limit),
               std::ranges::max_element(planned.program.ranks, {}, &RankProgram::arena_bytes)->peak));
  }
  if (compute.tune) {
    TSR_RETURN_IF_ERROR(keep_fastest_algorithms(planned.program, *shared).with_context("option 'tune'"));
    TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog()));
  }
  TSR_ASSIGN_OR_RETURN(Compiled compiled,
                       compiled_from(std::move(planned), devices, compute.trace, compute.memory_limit));
  // Several entries share an arena, which then is larger than the first alone has promised.
  if (!compute.plan_file.empty() && graphs.size() == 1)
    TSR_RETURN_IF_ERROR(check_promise(compiled.record->entries[0].plan, compiled.program)
                            .with_context(format("plan '{}'", compute.plan_file)));
  TSR_RETURN_IF_ERROR(check_host_memory(compiled, compute.host_memory_limit));
  return compiled;
}

Status require(const Graph& graph, TensorKind kind, std::string_view name, std::string_view purpose) {
  const bool found = kind == TensorKind::kInput
                         ? graph.find_tensor(name) && graph.tensor(*graph.find_tensor(name)).kind == kind
                         : graph.find_output(name).has_value();
  if (found) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{} needs the {} '{}', which this graph does not have", purpose,
                       kind == TensorKind::kInput ? "input" : "output", name));
}

}  // namespace

namespace {

Result<Graph> forward_with_loss(const Graph& forward, bool language_model, const TrainerSettings& settings) {
  Graph with_loss = forward;
  if (settings.dropout > 0 && !has_op(forward, "dropout"))
    return Status(StatusCode::kInvalidArgument,
                  format("option 'dropout' is {}, the model has no dropout op", settings.dropout));
  if (has_op(forward, "dropout") && settings.dropout >= 0) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_dropout(forward, settings.dropout));
  }
  TSR_RETURN_IF_ERROR(freeze(with_loss, settings.frozen));
  if (language_model) {
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kInput, "tokens", "training on a dataset"));
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "logits", "training on a dataset"));
    TSR_RETURN_IF_ERROR(add_token_loss(with_loss));
    if (settings.fused_loss == FusedLoss::kOn) {
      TSR_ASSIGN_OR_RETURN(with_loss, with_fused_loss(with_loss));
    }
  } else {
    TSR_RETURN_IF_ERROR(require(with_loss, TensorKind::kActivation, "loss", "training without a dataset"));
  }
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_mixed_precision(with_loss, settings.precision));
  }
  if (settings.tf32_products) {
    TSR_ASSIGN_OR_RETURN(with_loss, with_tf32_products(with_loss));
  }
  return with_loss;
}

// A whole step, or an evaluation, with parameters as they are stored.
Result<Graph> with_parameters_as_set(Result<Graph> graph, const TrainerSettings& settings) {
  if (!graph.ok() || !settings.bf16_weights) return graph;
  return with_bf16_parameters(*graph);
}

}  // namespace

Result<Graph> training_step(const Graph& forward, bool language_model, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const Graph with_loss, forward_with_loss(forward, language_model, settings));
  return with_parameters_as_set(make_training_step(with_loss, settings.step), settings);
}

namespace {

Result<Compiled> compile_training_as_set(const Graph& forward, bool language_model,
                                         const TrainerSettings& settings,
                                         const std::shared_ptr<DeviceSet>& devices) {
  TSR_ASSIGN_OR_RETURN(const Graph with_loss, forward_with_loss(forward, language_model, settings));
  std::vector<GraphToPlan> graphs;
  const auto add = [&](std::string name, Graph graph) {
    auto shared = std::make_shared<const Graph>(std::move(graph));
    graphs.push_back({std::move(name), shared, symbols_of(*shared, settings.symbols)});
  };
  if (!settings.evaluate_only) {
    TSR_ASSIGN_OR_RETURN(Graph step,
                         with_parameters_as_set(make_training_step(with_loss, settings.step), settings));
    add("train_step", std::move(step));
  }
  TSR_ASSIGN_OR_RETURN(
      Graph evaluation,
      with_parameters_as_set(make_evaluation(with_loss, settings.step.fp8_products), settings));
  add("eval", std::move(evaluation));
  return plan_all(graphs, settings.compute, settings.batch, devices);
}

// Split over the vocabulary the fused loss makes its logits three times, and apart they are but a share of
// them.
bool splits_fused_vocabulary(const PlannedEntry& entry) {
  const std::span<const Node> nodes = entry.graph->nodes();
  for (size_t n = 0; n < nodes.size() && n < entry.plan.nodes.size(); ++n)
    if (nodes[n].op->name.starts_with("linear_cross_entropy"))
      for (const auto& [factor, axes] : entry.plan.nodes[n].factor_axes)
        if (factor == 'v' && !axes.empty()) return true;
  return false;
}

bool on_gpu(const DeviceSet& devices) { return devices.text().starts_with("cuda"); }

Result<Compiled> compile_training_with_loss(const Graph& forward, bool language_model,
                                            const TrainerSettings& settings,
                                            const std::shared_ptr<DeviceSet>& devices) {
  if (settings.fused_loss != FusedLoss::kAuto)
    return compile_training_as_set(forward, language_model, settings, devices);
  TrainerSettings apart = settings, fused = settings;
  apart.fused_loss = FusedLoss::kOff;
  fused.fused_loss = FusedLoss::kOn;
  if (!language_model || !on_gpu(*devices))
    return compile_training_as_set(forward, language_model, apart, devices);
  auto together = compile_training_as_set(forward, language_model, fused, devices);
  if (together.ok() && !splits_fused_vocabulary(together->record->entries[0])) return together;
  // Another head, a plan made for logits, memory, or a vocabulary that is split.
  auto with_logits = compile_training_as_set(forward, language_model, apart, devices);
  if (!together.ok() || !with_logits.ok())
    return with_logits.ok() ? std::move(with_logits) : std::move(together);
  const auto seconds = [](const Compiled& it) { return it.record->entries[0].plan.estimate.step_time_s; };
  return seconds(*together) < seconds(*with_logits) ? std::move(together) : std::move(with_logits);
}

}  // namespace

namespace {

// What to do where a model cannot be computed in the precision asked for.
Result<Compiled> with_remedy(Result<Compiled> made, DType precision, const DeviceSet& devices) {
  if (made.ok() || precision == DType::kF32 || made.status().code() != StatusCode::kUnsupported) return made;
  return Status(
      StatusCode::kUnsupported,
      format("precision {} needs devices with such kernels, and '{}' lacks one: use precision f32, or "
             "tf32, or devices cuda ({})",
             info(precision).name, devices.text(), made.status().message()));
}

}  // namespace

TrainerSettings settled(TrainerSettings settings, const DeviceSet& devices) {
  if (settings.step.fp8_products) settings.precision = on_gpu(devices) ? DType::kBF16 : DType::kF32;
  // cuBLASLt has that at the end of its products of two bytes an element.
  settings.step.gelu_in_products = on_gpu(devices) && settings.precision != DType::kF32;
  return settings;
}

Result<Compiled> compile_training(const Graph& forward, bool language_model, const TrainerSettings& given,
                                  const std::shared_ptr<DeviceSet>& devices) {
  const TrainerSettings settings = settled(given, *devices);
  return with_remedy(compile_training_with_loss(forward, language_model, settings, devices),
                     settings.precision, *devices);
}

Result<Compiled> compile_generation(const Graph& forward, const GeneratorSettings& settings,
                                    const std::shared_ptr<DeviceSet>& devices) {
  TSR_RETURN_IF_ERROR(require(forward, TensorKind::kInput, "tokens", "generating"));
  TSR_RETURN_IF_ERROR(require(forward, TensorKind::kActivation, "logits", "generating"));
  Graph computed = forward;
  if (settings.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(computed, with_mixed_precision(forward, settings.precision));
  }
  TSR_ASSIGN_OR_RETURN(Graph decoding,
                       make_decoding(computed, {.cache_capacity = settings.context, .sample = true}));
  TSR_ASSIGN_OR_RETURN(decoding, with_stored_weights(decoding, settings.weights));
  if (settings.tf32_products) {
    TSR_ASSIGN_OR_RETURN(decoding, with_tf32_products(decoding));
  }
  const auto graph = std::make_shared<const Graph>(std::move(decoding));
  std::vector<GraphToPlan> graphs = {{"decode", graph, symbols_of(*graph, {{"T", 1}})}};
  const bool on_cores = devices->cluster().shared_cores > 0;
  for (const PrefillChunk& chunk : kPrefillChunks)
    if (chunk.tokens <= settings.context && (chunk.tokens <= 128 || !on_cores))
      graphs.push_back({std::string(chunk.entry), graph, symbols_of(*graph, {{"T", chunk.tokens}})});
  return with_remedy(plan_all(graphs, settings.compute, 1, devices), settings.precision, *devices);
}

Result<Compiled> compile_graph(const Graph& given, const PlanOptions& options, const DeviceSet& devices) {
  TSR_ASSIGN_OR_RETURN(const Graph graph, in_canonical_order(given));
  TSR_ASSIGN_OR_RETURN(PlanResult made, make_plan(graph, devices.cluster(), devices.catalog(), options));
  made.plan.estimate.profile = profile_of(devices);
  Planned planned{{{"main", std::make_shared<const Graph>(graph), std::move(made.plan)}},
                  std::move(made.candidates),
                  std::move(made.search),
                  {}};
  TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog()));
  return compiled_from(std::move(planned), devices, false, options.memory_limit);
}

Result<Compiled> compile_entries(std::vector<PlannedEntry> entries, const DeviceSet& devices) {
  if (entries.empty()) return Status(StatusCode::kInvalidArgument, "a program needs at least one entry");
  Planned planned{std::move(entries), {}, {}, {}};
  TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog()));
  return compiled_from(std::move(planned), devices);
}

}  // namespace tessera
