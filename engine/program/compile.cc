// Settings choose the entries' graphs. The first graph is planned, the others follow its plan, and all are lowered to one
// Program that shares arenas.
#include "engine/program/compile.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/agreement.h"
#include "engine/model/rewrite.h"
#include "engine/program/entry_graphs.h"
#include "engine/program/entry_plans.h"
#include "engine/program/serving_settings.h"
#include "engine/program/training_bound.h"
#include "engine/program/training_graphs.h"
#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/serving_pages.h"
#include "graph/transform/serving_rows.h"
#include "graph/transform/shared_angles.h"
#include "parallel/pricing/host_tier.h"
#include "parallel/pricing/network_bytes.h"
#include "parallel/pricing/simulator.h"

namespace tessera {
namespace {

// Adds empty programs for devices that a plan leaves idle; such a plan has arenas of size 0 for them.
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

// Reasons for offload on a device without memory of its own: where the bytes are, and their limit.
std::vector<std::string> offload_reasons(const Program& program, const Cluster& cluster) {
  std::vector<std::string> reasons;
  int64_t host = 0, file = 0;
  for (const RankProgram& rank : program.ranks) host += rank.host_arena_bytes, file += rank.file_arena_bytes;
  if (!shares_host_memory(cluster)) return reasons;
  if (host > 0)
    reasons.push_back(format("{} of offloaded tensors in host memory count under the memory limit: it is the "
                             "devices' own memory; @file takes them out of it",
                             bytes_text(host)));
  if (file > 0)
    reasons.push_back(format("{} of tensors lie in a file (option offload_folder, default $TMPDIR): host memory "
                             "is the devices' own here",
                             bytes_text(file)));
  return reasons;
}

Result<CompiledProgram> compiled_from(EntryPlans planned, const DeviceSet& devices, bool trace = false,
                                      int64_t memory_limit = 0, int64_t accumulate = 1) {
  std::vector<PlannedEntry>& entries = planned.entries;
  CompiledProgram compiled;
  compiled.program = std::move(planned.program);
  const bool is_whole = devices.ranks().is_whole();
  if (is_whole) add_idle_ranks(compiled.program, entries[0].plan, devices.size());
  if (compiled.program.rank_set().world != devices.size())
    return Status(StatusCode::kInvalidArgument,
                  format("the plan '{}' is for {} devices, '{}' has {}", entries[0].plan.strategy,
                         compiled.program.rank_set().world, devices.text(), devices.size()));
  auto record = std::make_shared<PlanRecord>();
  for (size_t at = 0; at < compiled.program.ranks.size(); ++at) {
    const RankProgram& program = compiled.program.ranks[at];
    record->devices.push_back(
        {devices.device_name(compiled.program.rank_of(at)), program.arena_bytes, program.host_arena_bytes, program.file_arena_bytes,
         program.max_live_bytes, program.peak});
  }
  if (trace && is_whole) {
    TSR_ASSIGN_OR_RETURN(const Simulation simulation,
                         simulate(compiled.program, entries[0].name, devices.cluster()));
    record->predicted_trace = trace_of(compiled.program, simulation);
  }
  record->cluster = devices.cluster();
  record->devices_text = devices.text();
  record->memory_limit = limit_of(record->cluster, memory_limit);
  record->accumulate = accumulate;
  TSR_ASSIGN_OR_RETURN(record->network_bytes, sum_of_all(devices.channel(), network_bytes(compiled.program, entries[0].name, record->cluster)));
  record->reasons = offload_reasons(compiled.program, record->cluster);
  record->entries = std::move(entries);
  record->candidates = std::move(planned.candidates);
  record->search = std::move(planned.search);
  compiled.record = std::move(record);
  return compiled;
}

Status check_host_memory(const CompiledProgram& compiled, int64_t limit) {
  int64_t needed = 0;
  for (const RankProgram& rank : compiled.program.ranks) needed += rank.host_arena_bytes;
  if (limit == 0 || needed <= limit) return {};
  return Status(
             StatusCode::kOutOfMemory,
             format(
                 "the plan '{}' keeps {} bytes ({}) in host memory, the limit is {} bytes ({}): raise it, or "
                 "offload to a file",
                 compiled.record->entries[0].plan.strategy, needed, bytes_text(needed), limit,
                 bytes_text(limit)))
      .with_number("needed_bytes", needed)
      .with_number("limit_bytes", limit);
}

Result<CompiledProgram> plan_all(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                 int64_t batch, const std::shared_ptr<DeviceSet>& devices,
                                 int64_t accumulate = 1, bool advise = true) {
  Result<EntryPlans> planned = plan_entries(graphs, compute, batch, devices);
  if (!planned.ok() && !advise) return planned.status();
  if (!planned.ok()) return with_device_advice(planned.status(), graphs, compute, batch, *devices);
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compiled_from(std::move(*planned), *devices, compute.trace,
                                                               compute.memory_limit, accumulate));
  // With several entries the shared arena is larger than the first entry alone promises.
  if (!compute.plan_file.empty() && graphs.size() == 1)
    TSR_RETURN_IF_ERROR(check_promise(compiled.record->entries[0].plan, compiled.program)
                            .with_context(format("plan '{}'", compute.plan_file)));
  TSR_RETURN_IF_ERROR(check_host_memory(compiled, compute.host_memory_limit));
  return compiled;
}

Result<CompiledProgram> compile_training_as_set(const Graph& forward, bool language_model,
                                                const TrainerSettings& settings,
                                                const std::shared_ptr<DeviceSet>& devices, bool advise = true) {
  TSR_ASSIGN_OR_RETURN(const std::vector<GraphToPlan> graphs, training_graphs(forward, language_model, settings));
  return plan_all(graphs, settings.compute, settings.batch, devices, settings.accumulate, advise);
}

// Whether the fused loss computes logits more than once: twice for separate
// token losses, three times for a split vocabulary, whose shards are small.
bool repeats_logits(const PlannedEntry& entry) {
  const std::span<const Node> nodes = entry.graph->nodes();
  const auto repeats_always = [](const Node& node) {
    return node.op->loss.head == LossHead::kTokens && node.op->loss.is_gradient;
  };
  if (std::ranges::any_of(nodes, repeats_always)) return true;
  for (size_t n = 0; n < nodes.size() && n < entry.plan.nodes.size(); ++n)
    if (nodes[n].op->loss.head == LossHead::kSum)
      for (const auto& [factor, axes] : entry.plan.nodes[n].factor_axes)
        if (factor == 'v' && !axes.empty()) return true;
  return false;
}

Result<CompiledProgram> compile_training_with_loss(const Graph& forward, bool language_model,
                                            const TrainerSettings& settings,
                                            const std::shared_ptr<DeviceSet>& devices) {
  if (settings.fused_loss != FusedLoss::kAuto)
    return compile_training_as_set(forward, language_model, settings, devices);
  TrainerSettings unfused = settings, fused = settings;
  unfused.fused_loss = FusedLoss::kOff;
  fused.fused_loss = FusedLoss::kOn;
  if (!language_model) return compile_training_as_set(forward, language_model, unfused, devices);
  if (!settings.compute.plan_text.empty()) {  // a given plan fixes the form
    auto with_logits = compile_training_as_set(forward, language_model, unfused, devices);
    if (with_logits.ok() || with_logits.status().code() != StatusCode::kInvalidArgument) return with_logits;
    return compile_training_as_set(forward, language_model, fused, devices);
  }
  if (!devices->catalog().fuses()) {
    // Logits cost no time if they fit. If neither form fits, the error is that of the smaller one.
    const auto is_too_large = [](const Result<CompiledProgram>& it) {
      return !it.ok() && it.status().code() == StatusCode::kOutOfMemory;
    };
    const auto smallest = [](const Result<CompiledProgram>& it) {
      return it.status().number("smallest_limit_bytes").value_or(INT64_MAX);
    };
    // A form excluded by its lower bound is searched only if it may still be the smaller one.
    // The device count is advised once, for the form whose error is returned.
    const auto advised = [&](const TrainerSettings& form, Result<CompiledProgram> made) -> Result<CompiledProgram> {
      if (!is_too_large(made)) return made;
      TSR_ASSIGN_OR_RETURN(const std::vector<GraphToPlan> graphs, training_graphs(forward, language_model, form));
      return with_device_advice(made.status(), graphs, form.compute, form.batch, *devices);
    };
    const int64_t limit = limit_of(devices->cluster(), settings.compute.memory_limit);
    const int64_t least = limit > 0 ? least_training_bytes(forward, language_model, unfused, *devices) : 0;
    std::optional<Result<CompiledProgram>> fused_form;
    if (least > limit) {
      fused_form = compile_training_as_set(forward, language_model, fused, devices, false);
      if (!is_too_large(*fused_form) || least >= smallest(*fused_form)) return advised(fused, std::move(*fused_form));
    }
    auto with_logits = compile_training_as_set(forward, language_model, unfused, devices, false);
    if (!is_too_large(with_logits)) return with_logits;
    if (!fused_form) fused_form = compile_training_as_set(forward, language_model, fused, devices, false);
    if (fused_form->ok()) return std::move(*fused_form);
    return smallest(*fused_form) < smallest(with_logits) ? advised(fused, std::move(*fused_form))
                                                         : advised(unfused, std::move(with_logits));
  }
  auto fused_program = compile_training_as_set(forward, language_model, fused, devices);
  if (fused_program.ok() && !repeats_logits(fused_program->record->entries[0])) return fused_program;
  // Reasons for logits: another head, a plan made for logits, memory, or logits computed more than once.
  auto with_logits = compile_training_as_set(forward, language_model, unfused, devices);
  if (!fused_program.ok() || !with_logits.ok())
    return with_logits.ok() ? std::move(with_logits) : std::move(fused_program);
  const auto seconds = [](const CompiledProgram& it) { return it.record->entries[0].plan.estimate.step_time_s; };
  return seconds(*fused_program) < seconds(*with_logits) ? std::move(fused_program) : std::move(with_logits);
}

// Adds a remedy to an error, where a model cannot be computed in the requested precision.
Result<CompiledProgram> with_remedy(Result<CompiledProgram> made, DType precision, const DeviceSet& devices) {
  if (made.ok() || precision == DType::kF32 || made.status().code() != StatusCode::kUnsupported) return made;
  return Status(
      StatusCode::kUnsupported,
      format("precision {} needs devices with such kernels, and '{}' lacks one: use precision f32, or "
             "tf32, or devices cuda ({})",
             info(precision).name, devices.text(), made.status().message()));
}

// Queries the kernel of an op with these operand types.
Result<KernelChoice> query_kernel(const DeviceSet& devices, std::string_view name,
                                  const std::vector<TensorType>& inputs, const TensorType& output,
                                  const std::vector<Attr>& given = {}) {
  const OpDef* const op = find_op(name);
  const std::vector<TensorType> outputs = {output};
  std::vector<Attr> attrs;
  for (const AttrSpec& spec : op->attrs) {
    const auto own = std::ranges::find(given, spec.name, &Attr::name);
    attrs.push_back(
        {std::string(spec.name), own == given.end() ? spec.default_value.value_or(AttrValue{}) : own->value});
  }
  ShardingRule rule = op->sharding({attrs, inputs, outputs, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, inputs, outputs));
  std::vector<FactorView> factors;
  for (const Factor& factor : rule.factors)
    factors.push_back({factor.name, factor.extent, factor.unit, 1, {0, 0}, {factor.extent, 0}});
  return devices.catalog().query(*op, {attrs, inputs, outputs, factors});
}

// Whether matmuls of this type have a kernel.
bool computes_in(const DeviceSet& devices, DType dtype) {
  const TensorType operand{dtype, {16, 16}};
  return query_kernel(devices, "matmul", {operand, operand}, operand).ok();
}

Activations finalized(Activations activations, DType precision, const DeviceSet& devices) {
  if (activations != Activations::kAuto) return activations;
  const auto query = [&](DType weight, const char* rounded_to) {
    const TensorType x{precision, {64, 256}}, w{weight, {16, 256}}, y{precision, {64, 16}};
    return query_kernel(devices, "quantized_matmul", {x, w}, y, {{"activations", std::string(rounded_to)}});
  };
  const bool q8 = query(DType::kQ8_0, "q8").ok();
  // Without bf16 instructions other kernels run, which gain nothing.
  const Result<KernelChoice> products = query(DType::kBF16, "bf16");
  const bool bf16 = precision == DType::kF32 && products.ok() && products->variant == "packed";
  return q8 && bf16 ? Activations::kRounded
         : q8       ? Activations::kQ8
         : bf16     ? Activations::kBF16
                    : Activations::kF32;
}

}  // namespace

TrainerSettings finalized(TrainerSettings settings, const DeviceSet& devices) {
  // On a CPU fp8 matmuls are computed in f32; bf16 elsewhere would save no time.
  if (settings.step.fp8_matmuls)
    settings.precision = devices.cluster().shared_cores == 0 && computes_in(devices, DType::kBF16)
                             ? DType::kBF16
                             : DType::kF32;
  settings.eval_activations = finalized(settings.eval_activations, settings.precision, devices);
  // cuBLASLt has this epilogue for 16-bit matmuls only.
  settings.step.fused_gelu_gradients = devices.catalog().fuses() && settings.precision != DType::kF32;
  return settings;
}

std::string accumulation_entry(TokenLoss loss) { return format("accumulate.{}", name_of(loss)); }

Result<CompiledProgram> compile_training(const Graph& forward, bool language_model, const TrainerSettings& given,
                                  const std::shared_ptr<DeviceSet>& devices) {
  const TrainerSettings settings = finalized(given, *devices);
  return with_remedy(compile_training_with_loss(forward, language_model, settings, devices),
                     settings.precision, *devices);
}

Result<CompiledProgram> compile_logprobs(const Graph& forward, const TrainerSettings& given,
                                         const std::shared_ptr<DeviceSet>& devices) {
  const TrainerSettings settings = finalized(given, *devices);
  const auto compiled = [&](FusedLoss fused_loss) -> Result<CompiledProgram> {
    TrainerSettings chosen = settings;
    chosen.fused_loss = fused_loss;
    TSR_ASSIGN_OR_RETURN(const LogicalGraph tokens,
                         forward_with_loss(forward, TokenLoss::kCrossEntropy, chosen));
    TSR_ASSIGN_OR_RETURN(Graph logprobs, logprobs_of(tokens, chosen));
    const GraphToPlan graphs[] = {GraphToPlan::create(
        std::string(kForwardEntry), std::make_shared<const Graph>(std::move(logprobs)), chosen.symbols)};
    return plan_all(graphs, chosen.compute, chosen.batch, devices);
  };
  Result<CompiledProgram> made =
      compiled(settings.fused_loss == FusedLoss::kOff ? FusedLoss::kOff : FusedLoss::kOn);
  // Fall back to logits: another head, or a plan made for logits.
  if (!made.ok() && settings.fused_loss == FusedLoss::kAuto) made = compiled(FusedLoss::kOff);
  return with_remedy(std::move(made), settings.precision, *devices);
}

namespace {

// The graph shared by all entries. `graph_of` builds it from settings with the activation type.
template <class Settings>
Result<std::shared_ptr<const Graph>> inference_graph(const Graph& forward, Settings settings,
                                                     Result<Graph> (*graph_of)(const Graph&, const Settings&),
                                                     const DeviceSet& devices) {
  InferenceSettings& inference = settings.inference;
  inference.activations = finalized(inference.activations, inference.precision, devices);
  TSR_ASSIGN_OR_RETURN(Graph graph, graph_of(forward, settings));
  return std::make_shared<const Graph>(std::move(graph));
}

bool is_on_cores(const DeviceSet& devices) { return devices.cluster().shared_cores > 0; }

// Precomputes RoPE angles on CPUs only: GPUs have threads to spare, and kernels that include rope.
Result<std::shared_ptr<const Graph>> with_angles_of(std::shared_ptr<const Graph> graph,
                                                    const DeviceSet& devices) {
  if (!is_on_cores(devices)) return graph;
  TSR_ASSIGN_OR_RETURN(Graph shared, with_shared_angles(*graph));
  return std::make_shared<const Graph>(std::move(shared));
}

// The graph to plan with a trainer's plan, in its settings.
template <class Settings>
Result<std::shared_ptr<const Graph>> trained_graph(const Graph& forward, const Settings& settings,
                                                   Result<Graph> (*graph_of)(const Graph&, const Settings&,
                                                                             const TrainerSettings&),
                                                   const TrainedPlan& along, const DeviceSet& devices) {
  TSR_ASSIGN_OR_RETURN(Graph graph, graph_of(forward, settings, finalized(along.settings, devices)));
  return std::make_shared<const Graph>(std::move(graph));
}

// Plans the entries.
template <class Settings>
Result<CompiledProgram> compile_inference(std::span<const GraphToPlan> graphs, const Settings& settings,
                                          int64_t batch, const std::shared_ptr<DeviceSet>& devices,
                                          const TrainedPlan* along = nullptr) {
  if (along != nullptr) {
    TSR_ASSIGN_OR_RETURN(EntryPlans planned,
                         plan_entries_along(graphs, settings.compute, along->entries, *devices));
    return compiled_from(std::move(planned), *devices, false, settings.compute.memory_limit);
  }
  return with_remedy(plan_all(graphs, settings.compute, batch, devices), settings.inference.precision,
                     *devices);
}

// Compiles entries for windows of tokens, from a graph with the symbol T.
template <class Settings>
Result<CompiledProgram> compile_windows(const Graph& forward, const Settings& settings,
                                        Result<Graph> (*graph_of)(const Graph&, const Settings&),
                                        std::vector<ScoreEntry> entries,
                                        const std::shared_ptr<DeviceSet>& devices) {
  TSR_ASSIGN_OR_RETURN(const auto graph, inference_graph(forward, settings, graph_of, *devices));
  std::vector<GraphToPlan> graphs;
  for (ScoreEntry& entry : entries)
    graphs.push_back(GraphToPlan::create(std::move(entry.name), graph, {{"T", entry.tokens}}));
  return compile_inference(graphs, settings, settings.batch, devices);
}

// "score.512", ..., each `factor` times shorter than the one before.
std::vector<ScoreEntry> make_shorter_entries(std::string_view name, int64_t longest, int64_t factor) {
  constexpr int64_t kShortest = 32;
  std::vector<ScoreEntry> entries;
  for (int64_t tokens = longest; entries.empty() || tokens >= kShortest; tokens /= factor)
    entries.push_back({format("{}.{}", name, tokens), tokens});
  return entries;
}

}  // namespace

Result<CompiledProgram> compile_serving(const Graph& forward, const ServingSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices, const TrainedPlan* along) {
  TSR_ASSIGN_OR_RETURN(
      auto graph, along != nullptr ? trained_graph(forward, settings, serving_as_trained, *along, *devices)
                                   : inference_graph(forward, settings, serving_of, *devices));
  TSR_ASSIGN_OR_RETURN(graph, with_angles_of(std::move(graph), *devices));
  std::vector<GraphToPlan> graphs;
  for (const ServingEntry& entry : serving_entries(settings))
    graphs.push_back(GraphToPlan::create(entry.name, graph, {{"N", entry.tokens}, {"W", entry.wanted}}));
  const auto add = [&](std::string_view name, Graph pages, int64_t slots) {
    graphs.push_back(GraphToPlan::create(std::string(name), std::make_shared<const Graph>(std::move(pages)),
                                         {{"N", slots}}));
    graphs.back().moves_state_only = true;
  };
  TSR_ASSIGN_OR_RETURN(Graph copy, make_page_copy(*graph));
  add(kPageCopyEntry, std::move(copy), copied_slots(settings));
  if (settings.has_state && spare_rows(settings) > 0) {
    TSR_ASSIGN_OR_RETURN(Graph rows, make_row_copy(*graph));
    add(kRowCopyEntry, std::move(rows), kCopiedRows);
  }
  if (!settings.stores_sequences) return compile_inference(graphs, settings, 1, devices, along);
  TSR_ASSIGN_OR_RETURN(Graph read, make_page_read(*graph));
  add(kPageReadEntry, std::move(read), stored_slots(settings));
  TSR_ASSIGN_OR_RETURN(Graph write, make_page_write(*graph));
  add(kPageWriteEntry, std::move(write), stored_slots(settings));
  return compile_inference(graphs, settings, 1, devices, along);
}

std::vector<ScoreEntry> score_entries(const ScorerSettings& settings) {
  return make_shorter_entries("score", settings.seq, 4);
}

Result<CompiledProgram> compile_scoring(const Graph& forward, const ScorerSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices) {
  return compile_windows(forward, settings, scoring_of, score_entries(settings), devices);
}

std::vector<ScoreEntry> embedding_entries(const EmbedderSettings& settings) {
  return make_shorter_entries("embed", settings.seq, 2);
}

Result<CompiledProgram> compile_embedding(const Graph& forward, const EmbedderSettings& settings,
                                          const std::shared_ptr<DeviceSet>& devices) {
  return compile_windows(forward, settings, embedding_of, embedding_entries(settings), devices);
}

Result<CompiledProgram> compile_importance(const Graph& forward, const ImportanceSettings& settings,
                                           const std::shared_ptr<DeviceSet>& devices,
                                           std::vector<InputSquares::Output>* outputs) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(forward));
  TSR_ASSIGN_OR_RETURN(InputSquares squares, make_input_squares(logical.graph));
  TSR_ASSIGN_OR_RETURN(Graph graph, with_stored_weights(squares.graph, {.types = logical.stored}));
  *outputs = std::move(squares.outputs);
  const GraphToPlan graphs[] = {GraphToPlan::create(
      "importance", std::make_shared<const Graph>(std::move(graph)), {{"T", settings.seq}})};
  return with_remedy(plan_all(graphs, settings.compute, settings.batch, devices), DType::kF32, *devices);
}

Result<CompiledProgram> compile_graph(const Graph& given, const PlanOptions& options,
                                      const DeviceSet& devices) {
  TSR_ASSIGN_OR_RETURN(const Graph graph, in_canonical_order(given));
  TSR_ASSIGN_OR_RETURN(PlanResult made, make_plan(graph, devices.cluster(), devices.catalog(), options));
  made.plan.estimate.profile = profile_of(devices);
  EntryPlans planned{{{"main", std::make_shared<const Graph>(graph), std::move(made.plan)}},
                     std::move(made.candidates),
                     std::move(made.search),
                     {}};
  TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog(), devices.ranks()));
  return compiled_from(std::move(planned), devices, false, options.memory_limit);
}

Result<CompiledProgram> compile_entries(std::vector<PlannedEntry> entries, const DeviceSet& devices) {
  if (entries.empty()) return Status(StatusCode::kInvalidArgument, "a program needs at least one entry");
  EntryPlans planned{std::move(entries), {}, {}, {}};
  TSR_RETURN_IF_ERROR(lower_entries(planned, devices.catalog(), devices.ranks()));
  return compiled_from(std::move(planned), devices);
}

}  // namespace tessera
