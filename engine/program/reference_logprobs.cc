#include "engine/program/reference_logprobs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/host_view.h"
#include "engine/model/loading.h"
#include "engine/program/compile.h"
#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/weight_storage.h"
#include "serialize/hash_stream.h"
#include "serialize/training_data/reference_file.h"

namespace tessera {
namespace {

constexpr uint64_t kLogprobsVersion = 2;  // version of the computation

int64_t vocabulary_of(const Graph& graph) {
  const std::optional<TensorId> logits = graph.find_output("logits");
  const Shape* shape = logits ? &graph.type(*logits).shape : nullptr;
  return shape != nullptr && shape->rank() > 0 ? (*shape)[shape->rank() - 1] : 0;
}

// ReferenceModel: the reference and its graph.
struct ReferenceModel {
  std::shared_ptr<SharedModel> model;
  Graph graph;
  uint64_t seed;  // seed for absent values
};

Status check_vocabularies(const ReferenceModel& reference, const SharedModel& model,
                          const TrainerSettings& settings) {
  const int64_t theirs = vocabulary_of(reference.graph), ours = vocabulary_of(model.graph());
  if (theirs != ours)
    return Status(StatusCode::kInvalidArgument,
                  format("reference '{}' has a vocabulary of {} tokens, the model of {}: wanted a model with "
                         "the same tokens",
                         settings.reference, theirs, ours));
  const auto own = model.tokenizer(), other = reference.model->tokenizer();
  if (own == nullptr || other == nullptr) return {};
  const auto differs = std::ranges::mismatch(own->data().tokens, other->data().tokens);
  if (differs.in1 == own->data().tokens.end() && differs.in2 == other->data().tokens.end()) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("reference '{}' has another vocabulary: token {} differs; wanted a model with the same "
             "tokens",
             settings.reference, differs.in1 - own->data().tokens.begin()));
}

Result<ReferenceModel> find_reference(const std::shared_ptr<SharedModel>& model, uint64_t seed,
                                      const TrainerSettings& settings) {
  ReferenceModel reference{model, model->graph(), seed};
  if (!settings.reference.empty()) {
    TSR_ASSIGN_OR_RETURN(auto source, open_model_file(settings.reference));
    TSR_ASSIGN_OR_RETURN(reference.model, load_shared_model(std::move(source), settings.reference));
    reference.graph = reference.model->graph();
    reference.seed = reference.model->seed();
    TSR_RETURN_IF_ERROR(check_vocabularies(reference, *model, settings));
    const int64_t context = reference.model->context_length();
    if (context > 0 && settings.seq > context)
      return Status(StatusCode::kInvalidArgument,
                    format("reference '{}': its context holds {} tokens, the dataset's samples have {}",
                           settings.reference, context, settings.seq));
    return reference;
  }
  // Adapters of quantized weights are found on the logical graph.
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(reference.graph));
  if (find_adapters(logical.graph).empty()) return reference;
  TSR_ASSIGN_OR_RETURN(const Graph plain, without_adapters(logical.graph));
  TSR_ASSIGN_OR_RETURN(reference.graph, with_stored_weights(plain, {.types = std::move(logical.stored)}));
  return reference;
}

// The training's settings that affect a forward pass.
TrainerSettings forward_settings(const TrainerSettings& training) {
  TrainerSettings settings = training;
  settings.preference.reset();
  settings.losses.clear();
  settings.frozen.clear();
  settings.evaluate_only = true;
  settings.eval_activations = Activations::kF32;
  settings.compute.plan_file.clear();
  settings.compute.pins = {};
  settings.compute.measure = 0;
  settings.compute.trace = false;
  return settings;
}

void add_text(HashStream& hash, std::string_view text) {
  const uint64_t size = text.size();
  hash.add(std::as_bytes(std::span(&size, 1)));
  hash.add(std::as_bytes(std::span(text)));
}

// The cache key: the model's graph and values, the rows, and the numerics.
Result<uint64_t> key_of(const ReferenceModel& reference, const Dataset& dataset,
                        const TrainerSettings& settings) {
  HashStream hash;
  const auto add = [&hash](auto value) { hash.add(std::as_bytes(std::span(&value, 1))); };
  add(kLogprobsVersion), add(reference.graph.fingerprint()), add(dataset.fingerprint());
  add(dataset.seq()), add(dataset.answers());
  add(dataset.answers() == 1 ? settings.batch : int64_t{0});  // batch of mismatched answers
  add(settings.precision), add(settings.tf32_matmuls), add(settings.step.fp8_matmuls);
  add(settings.bf16_weights), add(settings.fused_loss);
  if (const auto source = reference.model->source()) TSR_RETURN_IF_ERROR(source->unchanged());
  constexpr size_t kSliceBytes = size_t{16} << 20;
  for (const TensorId id : reference.graph.tensors_of_kind(TensorKind::kParameter)) {
    const std::string& name = reference.graph.tensor(id).name;
    add_text(hash, name);
    TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> given, reference.model->find(name));
    if (!given) {
      add(reference.seed);
      continue;
    }
    add_text(hash, to_text(given->tensor.type));
    for (std::span<const std::byte> rest = given->tensor.data; !rest.empty();) {
      cancellation_point();
      const auto slice = rest.first(std::min(kSliceBytes, rest.size()));
      hash.add(slice);
      rest = rest.subspan(slice.size());
    }
  }
  return hash.digest();
}

// Runs the forward pass over all rows.
class ReferencePass {
 public:
  ReferencePass(ProgramRunner& runner, const Dataset& dataset, int64_t batch, LogQueue& log)
      : runner_(runner), dataset_(dataset), rows_(BatchRows::of(dataset, batch)), log_(log) {}

  Result<std::vector<double>> run() {
    const int64_t count = dataset_.train_samples() + dataset_.eval_samples();
    const bool is_paired = dataset_.answers() == 2;
    std::vector<double> values(static_cast<size_t>(2 * count));
    auto said = std::chrono::steady_clock::now();
    for (int64_t first = 0; first < count; first += rows_.batch) {
      cancellation_point();
      const int64_t rows = std::min(rows_.batch, count - first);
      TSR_ASSIGN_OR_RETURN(const std::vector<double> own, sums(first, rows, false));
      std::vector<double> other;
      if (!is_paired) {
        TSR_ASSIGN_OR_RETURN(other, sums(first, rows, true));
      }
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t answer = 0; answer < 2; ++answer)
          values[static_cast<size_t>(2 * (first + row) + answer)] =
              is_paired     ? own[static_cast<size_t>(2 * row + answer)]
              : answer == 0 ? own[static_cast<size_t>(row)]
                            : other[static_cast<size_t>(row)];
      report_progress(static_cast<double>(first + rows) / static_cast<double>(count) * 0.99);
      constexpr std::chrono::seconds kPause{10};
      if (const auto now = std::chrono::steady_clock::now(); now - said > kPause) {
        log_.add(1, format("reference: log probabilities of {} of {} rows", first + rows, count));
        said = now;
      }
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        return Status(kNotFinite,
                      format("reference: the log probability of row {} is {}, wanted a finite number: the "
                             "reference's weights or the precision do not fit the data",
                             i / 2, values[i]));
    return values;
  }

 private:
  // A batch that is not full repeats its last row.
  Result<std::vector<double>> sums(int64_t first, int64_t rows, bool mismatched) {
    for (int64_t row = 0; row < rows_.batch; ++row) {
      const int64_t number = first + std::min(row, rows - 1);
      TSR_RETURN_IF_ERROR(mismatched ? dataset_.fill_mismatched(number, rows_.batch, rows_.row(row))
                                     : dataset_.fill_row(number, rows_.row(row)));
    }
    TSR_RETURN_IF_ERROR(rows_.feed(runner_, kForwardEntry));
    TSR_RETURN_IF_ERROR(runner_.run(kForwardEntry));
    return answer_sums(runner_, kForwardEntry, rows_, dataset_.answers());
  }

  ProgramRunner& runner_;
  const Dataset& dataset_;
  BatchRows rows_;
  LogQueue& log_;
};

Result<std::vector<double>> compute(const std::shared_ptr<Runtime>& runtime, const ReferenceModel& reference,
                                    const Dataset& dataset, const TrainerSettings& training) {
  const TrainerSettings settings = forward_settings(training);
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_world_devices(settings.compute.devices, settings.compute.profile));
  Progress unseen;  // of planning
  Result<CompiledProgram> compiled = [&] {
    const ProgressScope scope(unseen);
    return compile_logprobs(reference.graph, settings, devices);
  }();
  if (!compiled.ok()) return compiled.status().with_context("reference");
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(runtime, std::move(devices), std::move(compiled).value()));
  const SessionOptions session{.measure_memory = false,
                               .trace = false,
                               .file_folder = settings.offload_folder,
                               .host_memory_limit = settings.compute.host_memory_limit,
                               .watchdog_s = settings.watchdog_s,
                               .side = CoreSide::kTraining};
  TSR_ASSIGN_OR_RETURN(const auto runner,
                       ProgramRunner::create(std::move(prepared), session, reference.model, reference.seed));
  if (runner->find_input(kForwardEntry, "positions") != nullptr &&
      dataset.layout() != Dataset::Layout::kPacked) {
    BatchRows rows = BatchRows::of(dataset, settings.batch);
    rows.positions.resize(rows.tokens.size());
    for (size_t i = 0; i < rows.positions.size(); ++i)
      rows.positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % rows.width);
    TSR_RETURN_IF_ERROR(rows.feed(*runner, kForwardEntry));
  }
  return ReferencePass(*runner, dataset, settings.batch, runtime->log()).run();
}

}  // namespace

Result<std::vector<double>> answer_sums(ProgramRunner& runner, std::string_view entry, const BatchRows& rows,
                                        int64_t answers) {
  TSR_ASSIGN_OR_RETURN(const HostTensor logprobs, runner.session().fetch(entry, kLogprobs));
  const std::vector<double> all = doubles_of(logprobs);
  const auto width = static_cast<size_t>(rows.width / answers);
  std::vector<double> sums(static_cast<size_t>(rows.batch * answers));
  for (size_t at = 0; at < sums.size(); ++at)
    for (size_t t = 0; t < width; ++t) sums[at] += all[at * width + t];
  return sums;
}

Result<std::vector<double>> reference_logprobs(const std::shared_ptr<Runtime>& runtime,
                                               const std::shared_ptr<SharedModel>& model, uint64_t seed,
                                               const Dataset& dataset, const TrainerSettings& settings) {
  TSR_ASSIGN_OR_RETURN(const ReferenceModel reference, find_reference(model, seed, settings));
  const std::string folder = dataset.cache_folder();
  if (folder.empty()) return compute(runtime, reference, dataset, settings);
  TSR_ASSIGN_OR_RETURN(const uint64_t key, key_of(reference, dataset, settings));
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(key));
  const std::string path = format("{}/{}.reference", folder, name);
  const int64_t rows = dataset.train_samples() + dataset.eval_samples();
  if (Result<std::vector<double>> found = read_reference_file(path, key, rows); found.ok()) {
    runtime->log().add(1, format("reference: log probabilities of {} rows, from {}", rows, path));
    return found;
  }
  TSR_ASSIGN_OR_RETURN(std::vector<double> values, compute(runtime, reference, dataset, settings));
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  if (const Status written = write_reference_file(path, key, values); !written.ok())
    runtime->log().add(
        2, format("reference: its log probabilities are not kept for the next time: {}", written.message()));
  return values;
}

}  // namespace tessera
