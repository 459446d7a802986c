#include "tests/float_type_graph.h"
#include "tests/conformance/parity_harness.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "graph/analysis/issue_order.h"
#include "graph/base/blocks/block_codec.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/fusion.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/precision.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/training.h"
#include "graph/transform/weight_storage.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"
#include "tests/conformance/block_graph.h"
#include "tests/conformance/parity_processes.h"
#include "tests/fusing_catalog.h"
#include "tests/masked_graph.h"
#include "tests/parallel/volumes.h"
#include "tests/reordered_graph.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

namespace tessera::parity {

namespace {

// Every value differs from what an initializer of zeros or ones would hide: a bias added twice, a norm left
// out.
std::vector<double> starting_values(const Graph& graph, TensorId id) {
  const Initializer initializer = initializer_for(graph, id);
  const std::string& name = graph.tensor(id).name;
  std::vector<double> values(static_cast<size_t>(graph.type(id).shape.elements()));
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 random(seed);
  const double centre = initializer.kind == Initializer::Kind::kOnes ? 1 : 0;
  // Adapters as wide as matrices would drown those, and a step then magnifies what rounding leaves.
  const bool wide =
      initializer.kind == Initializer::Kind::kNormal && name.find(".lora_") == std::string::npos;
  const double width = wide ? 5 * initializer.stddev : 0.1;
  std::normal_distribution<double> normal(centre, width);
  // Rounded to f32, so that both element types start alike.
  for (double& value : values) value = static_cast<float>(normal(random));
  return values;
}

HostTensor floats(const TensorType& type, std::span<const double> values) {
  if (is_block_type(type.dtype)) {
    const std::vector<float> wide(values.begin(), values.end());
    std::span<std::byte> blocks;
    HostTensor tensor = HostTensor::zeros(type, &blocks);
    const Status encoded =
        encode_blocks(type.dtype, wide.data(), static_cast<int64_t>(wide.size()), blocks.data());
    TSR_CHECK(encoded.ok(), "starting values are finite");
    return tensor;
  }
  if (type.dtype == DType::kF64) return HostTensor::copy_of<double>(type, values);
  const std::vector<float> narrow(values.begin(), values.end());
  return HostTensor::copy_of<float>(type, narrow);
}
HostTensor scalar(DType dtype, double value) { return floats({dtype, {}}, std::span(&value, 1)); }

std::vector<double> doubles(const HostTensor& tensor) {
  if (is_block_type(tensor.type.dtype)) return doubles(*widen_weight(tensor));
  if (tensor.type.dtype == DType::kF64) return {tensor.as<double>().begin(), tensor.as<double>().end()};
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

Result<Graph> model_graph(const Job& job) {
  if (job.model == "block") return block_graph();
  if (job.model == "masked") return test::masked_graph(40, true);
  TSR_ASSIGN_OR_RETURN(ModelConfig config, parse_shorthand(job.model));
  if (!config.flags.contains("tied")) config.flags["tied"] = job.tied;
  if (job.dropout > 0) config.reals["dropout"] = job.dropout;
  if (job.lora == 0) return build_model(config);
  TSR_ASSIGN_OR_RETURN(const Graph base, build_model(config));
  // A factor that is not 1, so that it is there to be seen.
  return with_adapters(base, adaptable_weights(base), {job.lora, 2.0 * static_cast<double>(job.lora)});
}

// Every parameter is read as its cast to `narrow`, cast back.
Result<Graph> with_rounded_weights(const Graph& forward, DType narrow) {
  GraphCopy copy(forward);
  for (size_t t = 0; t < forward.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = forward.tensor(id);
    if (tensor.producer != kNoNode) {
      if (tensor.output_index == 0) TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      continue;
    }
    TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    if (tensor.kind != TensorKind::kParameter) continue;
    const auto cast = [&](TensorId from, DType to) {
      return copy.graph().add("cast", {from}, {{"dtype", std::string(to_text(to))}});
    };
    TSR_ASSIGN_OR_RETURN(const TensorId rounded, cast(copy.mapped(id), narrow));
    TSR_ASSIGN_OR_RETURN(const TensorId widened, cast(rounded, tensor.type.dtype));
    copy.replace(id, widened);
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Status add_squared_losses(Graph& graph) {
  const TensorId logits = *graph.find_output("logits");
  const TensorType type = graph.type(logits);
  const Shape tokens(type.shape.dims().first(2));
  TSR_ASSIGN_OR_RETURN(const TensorId labels,
                       graph.add_tensor("labels", {DType::kI32, tokens}, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const TensorId scale,
                       graph.add_tensor("loss_scale", {type.dtype, {}}, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const CrossEntropy entropy, add_cross_entropy(graph, logits, labels));
  TSR_ASSIGN_OR_RETURN(const TensorId squares, graph.add("square", {entropy.losses}));
  TSR_ASSIGN_OR_RETURN(const TensorId sum,
                       graph.add("reduce_sum", {squares}, {{"axes", std::vector<int64_t>{0, 1}}}));
  TSR_ASSIGN_OR_RETURN(const TensorId loss, graph.add("scale_by", {sum, scale}));
  return graph.add_output("loss", loss);
}

Result<Graph> forward_graph(const Job& job) {
  TSR_ASSIGN_OR_RETURN(Graph model, model_graph(job));
  std::mt19937 random(job.reordered);
  if (job.reordered != 0) {
    TSR_ASSIGN_OR_RETURN(model, test::reordered(model, random, false));
  }
  TSR_ASSIGN_OR_RETURN(Graph forward, with_float_type(model, job.dtype));
  if (!forward.find_output("loss"))
    TSR_RETURN_IF_ERROR(job.squares_losses ? add_squared_losses(forward) : add_token_loss(forward));
  if (job.fused_loss) {
    TSR_ASSIGN_OR_RETURN(forward, with_fused_loss(forward));
  }
  if (job.rounded_weights != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(forward, with_rounded_weights(forward, job.rounded_weights));
  }
  if (job.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(forward, with_mixed_precision(forward, job.precision));
  }
  if (job.tf32_matmuls) {
    TSR_ASSIGN_OR_RETURN(forward, with_tf32_matmuls(forward));
  }
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter)) {
    const std::string& name = forward.tensor(id).name;
    const auto named = [&](const std::string& part) { return name.find(part) != std::string::npos; };
    if (!job.trainable.empty()) forward.set_trainable(id, std::ranges::any_of(job.trainable, named));
  }
  return forward;
}

}  // namespace

BackendRegistry& registry() {
  static BackendRegistry shared([] {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.threads = 2;
    options.plugin_path = test::plugin_folder();
    return options;
  }());
  return shared;
}

namespace {

// Weights that do not train, as the job stores them.
Result<Graph> with_job_storage(const Graph& graph, const Job& job) {
  if (job.stored_weights == DType::kF32) return graph;
  WeightStorage storage;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = graph.tensor(id);
    const Shape& shape = tensor.type.shape;
    if (!tensor.trainable && shape.rank() == 2 && shape[1] % info(job.stored_weights).block_elements == 0)
      storage.types.emplace(tensor.name, job.stored_weights);
  }
  return with_stored_weights(graph, storage);
}

std::string gradient_output(std::string_view parameter) { return format("gradient of {}", parameter); }

// One batch of random tokens; every seventh label is ignored.
class Feeder {
 public:
  Feeder(const Job& job, const Graph& step, Session& session) : job_(job), session_(session) {
    for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
      if (step.tensor(id).name == "token_embedding") vocabulary_ = step.type(id).shape[0];
  }

  Status feed(int step, std::span<const std::string_view> entries) {
    std::vector<int32_t> tokens, labels, positions, segments;
    int64_t valid = 0;
    for (int64_t i = 0; i < job_.batch * job_.tokens; ++i) {
      // Documents that end elsewhere in each sequence.
      segments.push_back(static_cast<int32_t>((i % job_.tokens + i / job_.tokens % 3) / 6));
      tokens.push_back(static_cast<int32_t>(random_() % static_cast<uint32_t>(vocabulary_)));
      labels.push_back(i % 7 == 0 ? -1 : static_cast<int32_t>((tokens.back() * 5 + 1) % vocabulary_));
      positions.push_back(static_cast<int32_t>(i % job_.tokens));
      valid += labels.back() >= 0;
    }
    const TensorType ids{DType::kI32, {job_.batch, job_.tokens}};
    for (const std::string_view entry : entries) {
      TSR_RETURN_IF_ERROR(give(entry, "tokens", HostTensor::copy_of<int32_t>(ids, tokens)));
      TSR_RETURN_IF_ERROR(give(entry, "labels", HostTensor::copy_of<int32_t>(ids, labels)));
      TSR_RETURN_IF_ERROR(give(entry, "positions", HostTensor::copy_of<int32_t>(ids, positions)));
      TSR_RETURN_IF_ERROR(give(entry, "segments", HostTensor::copy_of<int32_t>(ids, segments)));
      TSR_RETURN_IF_ERROR(give(entry, "loss_scale", scalar(job_.dtype, 1.0 / static_cast<double>(valid))));
    }
    TSR_RETURN_IF_ERROR(give("train_step", "lr", scalar(job_.dtype, job_.lr)));
    TSR_RETURN_IF_ERROR(give("train_step", "step", scalar(job_.dtype, step + 1)));
    const int64_t seed = 100 + step;
    return give("train_step", "seed", HostTensor::copy_of<int64_t>({DType::kI64, {}}, std::span(&seed, 1)));
  }

 private:
  // Inputs that the entry does not have (rotary models learn no positions) are not fed.
  Status give(std::string_view entry, std::string_view input, const HostTensor& value) {
    const Program& program = session_.executable().program();
    for (size_t index = 0; index < program.ranks.size(); ++index)
      if (const EntryPoint* at = program.find_entry(program.rank_of(index), entry))
        for (const Binding& binding : at->inputs)
          if (binding.name == input) return session_.feed(entry, input, value);
    return {};
  }

  const Job& job_;
  Session& session_;
  int64_t vocabulary_ = 1;
  std::mt19937 random_{5};
};

}  // namespace

int32_t ranks_of(const Plan& plan) {
  int32_t ranks = 0;
  for (const Stage& stage : plan.stages)
    for (const int32_t device : stage.mesh.devices) ranks = std::max(ranks, device + 1);
  return ranks;
}

Status run_on(const Job& job, const Graph& step, const Plan& plan, const std::shared_ptr<DeviceSet>& devices, Outcome& out) {
  std::vector<EntrySpec> entries = {{"train_step", &step, &plan}};
  Graph evaluation;
  PlanResult evaluated;
  if (job.evaluates) {
    TSR_ASSIGN_OR_RETURN(const Graph forward, forward_graph(job));
    TSR_ASSIGN_OR_RETURN(evaluation, make_evaluation(forward, job.fp8_matmuls));
    TSR_ASSIGN_OR_RETURN(evaluation, with_job_storage(evaluation, job));
    PlanOptions like_step;
    like_step.global_batch = job.batch;
    like_step.symbols = plan.symbols;
    like_step.like = &plan;
    like_step.like_graph = &step;
    TSR_ASSIGN_OR_RETURN(evaluated, make_plan(evaluation, devices->cluster(), devices->catalog(), like_step));
    entries.push_back({"eval", &evaluation, &evaluated.plan});
  }
  const FusingCatalog fusing(devices->catalog());
  TSR_ASSIGN_OR_RETURN(out.program,
                       job.fuses_kernels ? lower(entries, fusing, devices->ranks())
                                         : lower(entries, devices->catalog(), devices->ranks()));
  TSR_RETURN_IF_ERROR(verify(out.program).with_context("the lowered program"));
  // Also where one thread issues for all streams of a rank, as on a GPU.
  for (const EntrySpec& entry : entries)
    if (devices->ranks().is_whole())
      TSR_RETURN_IF_ERROR(check_issue_order(out.program, entry.name).with_context("the lowered program"));
  TSR_ASSIGN_OR_RETURN(auto executable, Executable::prepare(devices, out.program));
  SessionOptions options;
  options.measure_memory = true;
  if (job.perturbation_seed != 0) {
    options.perturbation_seed = job.perturbation_seed;
    options.streams = StreamOptions{.inline_below_bytes = 0};
    options.watchdog_s = 30;
  }
  TSR_ASSIGN_OR_RETURN(auto session, Session::create(executable, options));

  const std::vector<TensorId> parameters = step.tensors_of_kind(TensorKind::kParameter);
  for (const TensorId id : parameters)
    TSR_RETURN_IF_ERROR(
        session->write(step.tensor(id).name, floats(step.type(id), starting_values(step, id))));
  Feeder feeder(job, step, *session);
  std::vector<std::string_view> names = {"train_step"};
  if (job.evaluates) names.push_back("eval");
  for (int s = 0; s < job.steps; ++s) {
    TSR_RETURN_IF_ERROR(feeder.feed(s, names));
    if (s == 1) out.allocations_after_first_step = -session->allocations();
    TSR_RETURN_IF_ERROR(session->run("train_step"));
    TSR_ASSIGN_OR_RETURN(const HostTensor loss, session->fetch("train_step", "loss"));
    out.losses.push_back(doubles(loss)[0]);
    if (s > 0) continue;
    out.sent = session->communication();
    for (const Gradient& gradient : step.gradients()) {
      const std::string& name = step.tensor(gradient.parameter).name;
      if (!step.find_output(gradient_output(name))) continue;
      TSR_ASSIGN_OR_RETURN(const HostTensor value, session->fetch("train_step", gradient_output(name)));
      out.gradients[name] = doubles(value);
    }
  }
  if (job.steps > 1) out.allocations_after_first_step += session->allocations();
  if (job.evaluates) {
    TSR_RETURN_IF_ERROR(session->run("eval"));
    TSR_ASSIGN_OR_RETURN(const HostTensor loss, session->fetch("eval", "loss"));
    out.losses.push_back(doubles(loss)[0]);
  }
  out.memory = session->memory();
  for (const TensorId id : parameters) {
    TSR_ASSIGN_OR_RETURN(const HostTensor value, session->read(step.tensor(id).name));
    out.weights[step.tensor(id).name] = doubles(value);
  }
  return {};
}

namespace {

Status run_into(const Job& job, const Graph& step, const Plan& plan, Outcome& out) {
  if (const int32_t processes = std::min(job.processes, ranks_of(plan)); processes > 1)
    return run_in_processes(job, step, plan, processes, out);
  TSR_ASSIGN_OR_RETURN(const std::string named, test::devices_for(registry(), ranks_of(plan)));
  TSR_ASSIGN_OR_RETURN(const auto devices, DeviceSet::open(registry(), named));
  return run_on(job, step, plan, devices, out);
}

std::string key_of(const Job& job) {
  return format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", job.model,
                to_text(job.dtype), to_text(job.rounded_weights), to_text(job.stored_weights),
                to_text(job.precision), job.batch, job.tokens, job.tied, job.optimizer, job.lr, job.steps,
                job.clip_norm, job.loss_scaling, job.dropout, join(job.trainable, ","), job.lora,
                job.gradients, job.evaluates, job.reordered, job.fp8_matmuls, job.tf32_matmuls,
                job.squares_losses);
}

// Ring-equivalent bytes of one training step, from its instructions.
double bytes_sent(const Program& program) {
  double bytes = total_bytes(count_sent(program, "train_step"));
  for (const RankProgram& rank : program.ranks)
    for (const EntryPoint& entry : rank.entries)
      if (entry.name == "train_step")
        for (const Instruction& instruction : entry.code)
          if (const auto* send = std::get_if<SendInst>(&instruction))
            bytes += static_cast<double>(send->bytes);
  return bytes;
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}
double largest(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}
std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> result(a.begin(), a.end());
  for (size_t i = 0; i < result.size(); ++i) result[i] -= b[i];
  return result;
}
// NaN counts as far.
void raise(double& worst, double value) {
  if (!(value <= worst)) worst = std::isnan(value) ? HUGE_VAL : value;
}

}  // namespace

Result<Graph> step_graph(const Job& job) {
  TSR_ASSIGN_OR_RETURN(const Graph forward, forward_graph(job));
  TrainingOptions training;
  training.optimizer.name = job.optimizer;
  training.clip_norm = job.clip_norm;
  training.loss_scaling.initial = job.loss_scaling;
  training.fp8_matmuls = job.fp8_matmuls;
  training.fused_gelu_gradients = job.fused_gelu_gradients;
  TSR_ASSIGN_OR_RETURN(Graph step, make_training_step(forward, training));
  TSR_ASSIGN_OR_RETURN(step, with_job_storage(step, job));
  if (job.gradients)
    for (const Gradient& gradient : std::vector<Gradient>(step.gradients().begin(), step.gradients().end()))
      TSR_RETURN_IF_ERROR(
          step.add_output(gradient_output(step.tensor(gradient.parameter).name), gradient.gradient));
  return step;
}

Result<Plan> plan_of(const Graph& step, const Job& job, std::string_view words, const PlanEdit& edit) {
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(words));
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", job.tokens}};
  TSR_ASSIGN_OR_RETURN(const Graph bound, step.bind_partly(symbols));
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(bound, pins.spec, job.batch));
  plan.symbols = symbols;
  if (edit) TSR_RETURN_IF_ERROR(edit(step, plan));
  return plan;
}

Outcome run_plan(const Job& job, const Graph& step, const Plan& plan) {
  Outcome out;
  const Status status = run_into(job, step, plan, out);
  out.code = status.code();
  out.error = status.to_string();
  return out;
}

Outcome run(const Job& job, std::string_view words, const PlanEdit& edit) {
  Outcome out;
  const auto attempt = [&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Graph step, step_graph(job));
    TSR_ASSIGN_OR_RETURN(const Plan plan, plan_of(step, job, words, edit));
    return run_into(job, step, plan, out);
  };
  const Status status = attempt();
  out.code = status.code();
  out.error = status.to_string();
  return out;
}

const Outcome& on_one_device(const Job& job) {
  static std::map<std::string, Outcome> known;
  const auto [at, fresh] = known.try_emplace(key_of(job));
  Job plain = job;
  plain.fused_loss = plain.fused_gelu_gradients = plain.fuses_kernels = false;
  plain.processes = 1;
  if (fresh) at->second = run(plain, "single");
  return at->second;
}

Deviation deviation(const Job& job, const Outcome& single, const Outcome& other) {
  Deviation result;
  if (other.losses.size() != single.losses.size()) result.loss = HUGE_VAL;
  for (size_t s = 0; s < other.losses.size() && s < single.losses.size(); ++s)
    raise(result.loss, std::abs(other.losses[s] - single.losses[s]) / std::abs(single.losses[s]));

  double most = 0, whole = 0;
  for (const auto& [name, values] : single.gradients) {
    most = std::max(most, largest(values));
    whole = std::hypot(whole, norm(values));
  }
  for (const auto& [name, values] : single.gradients) {
    const auto at = other.gradients.find(name);
    if (at == other.gradients.end() || at->second.size() != values.size()) {
      result.gradient = HUGE_VAL;
    } else {
      raise(result.gradient, largest(difference(at->second, values)) / most);
    }
  }

  const bool adam = job.optimizer == "adamw";
  const double least = job.dtype == DType::kF64 ? 1e-12 : 1e-6;
  for (const auto& [name, values] : single.weights) {
    const auto gradient = single.gradients.find(name);
    if (adam && gradient != single.gradients.end() && norm(gradient->second) < least * whole) {
      result.noise.push_back(name);
      continue;
    }
    const std::vector<double> deviation = difference(other.weights.at(name), values);
    raise(result.weights, adam ? norm(deviation) / norm(values) : largest(deviation) / largest(values));
  }
  return result;
}

bool Row::good() const {
  const double most = tolerance(dtype);
  return ran && loss <= most && gradient <= most && adamw <= most && sgd <= most && arena_exact &&
         bytes_exact && allocations == 0;
}

Row measure(const Job& job, std::string_view words, const PlanEdit& edit, std::string_view label) {
  Row row;
  row.form = label.empty() ? std::string(words) : std::string(label);
  row.model = job.model.substr(0, job.model.find(':'));
  row.dtype = job.dtype;
  if (const auto pins = parse_parallel(words); pins.ok()) row.devices = pins->spec.devices();
  for (const std::string_view optimizer : {"adamw", "sgd"}) {
    Job each = job;
    each.optimizer = optimizer;
    // In its first steps Adam divides by the root of second moments that may be tiny, so differences of
    // rounding grow in proportion to the rate; in f32 it is small enough for the tolerance to be about the
    // plan.
    each.lr = optimizer == "sgd" ? 20 * job.lr : job.dtype == DType::kF32 ? job.lr / 5 : job.lr;
    each.gradients = true;
    const Outcome& single = on_one_device(each);
    if (!single.ok()) {
      row.refused = single.error;
      row.code = single.code;
      return row;
    }
    // The step as users run it has no gradients among its outputs: the second run leaves them out.
    each.gradients = optimizer == "adamw";
    const Outcome out = run(each, words, edit);
    if (!out.program.ranks.empty()) row.devices = static_cast<int32_t>(out.program.ranks.size());
    if (!out.ok()) {
      row.refused = out.error;
      row.code = out.code;
      return row;
    }
    Outcome held = single;
    if (!each.gradients) held.gradients.clear();
    const Deviation deviations = deviation(each, held, out);
    raise(row.loss, deviations.loss);
    raise(row.gradient, deviations.gradient);
    (optimizer == "adamw" ? row.adamw : row.sgd) = deviations.weights;
    if (optimizer == "adamw") row.noise = deviations.noise;
    for (const MemoryReport& memory : out.memory) {
      row.arena = std::max(row.arena, memory.predicted_bytes);
      row.arena_exact = row.arena_exact && memory.measured_bytes == memory.predicted_bytes &&
                        memory.host_measured_bytes == memory.host_predicted_bytes &&
                        memory.file_measured_bytes == memory.file_predicted_bytes;
    }
    double counted = 0;
    for (const CommReport& report : out.sent) counted += static_cast<double>(report.bytes);
    row.bytes_exact = row.bytes_exact && std::abs(counted - bytes_sent(out.program)) < 0.5;
    row.allocations = std::max(row.allocations, out.allocations_after_first_step);
  }
  row.ran = true;
  return row;
}

std::string to_text(const Row& row) {
  char line[512];
  if (!row.ran) {
    std::snprintf(line, sizeof(line), "parity | %-34s | %d | %-7s | %s | refused: %s", row.form.c_str(),
                  row.devices, row.model.c_str(), to_text(row.dtype).c_str(), row.refused.c_str());
    return line;
  }
  std::snprintf(line, sizeof(line),
                "parity | %-34s | %d | %-7s | %s | %7.1e | %7.1e | %7.1e | %7.1e | %8lld %s | %lld | %s",
                row.form.c_str(), row.devices, row.model.c_str(), to_text(row.dtype).c_str(), row.loss,
                row.gradient, row.adamw, row.sgd, static_cast<long long>(row.arena),
                !row.arena_exact   ? "DIFFERS from measured"
                : !row.bytes_exact ? "= measured; bytes sent DIFFER"
                                   : "= measured",
                static_cast<long long>(row.allocations),
                row.noise.empty() ? "-" : join(row.noise, " ").c_str());
  return line;
}

void print_header() {
  std::printf(
      "parity | form | devices | model | dtype | loss | gradients | weights AdamW | weights SGD | arena "
      "bytes | "
      "allocations after the first step | left out of AdamW (zero gradient)\n");
}

void check(const Row& row) {
  const std::string line = to_text(row);
  std::printf("%s\n", line.c_str());
  CHECK_MESSAGE(row.good(), line);
}

}  // namespace tessera::parity
