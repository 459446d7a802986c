// A step feeds its batches, runs the program's entries (one for a whole step; or one for each batch and one for the update)
// and reads loss and gradient norm. A step whose norm is not finite changes nothing.
#include "engine/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <span>

#include "engine/model/initialize.h"
#include "engine/program/compile.h"
#include "engine/program/reference_logprobs.h"
#include "engine/program/report.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/progress.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/transform/precision.h"
#include "serialize/file_limits.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void subtract(std::vector<CommReport>& from, std::span<const CommReport> part) {
  for (CommReport& report : from)
    for (const CommReport& other : part)
      if (report.collective == other.collective && report.axis == other.axis) {
        report.calls -= other.calls;
        report.bytes -= other.bytes;
      }
}

void add(std::vector<CommReport>& to, std::span<const CommReport> part) {
  for (const CommReport& report : part) {
    const auto found = std::find_if(to.begin(), to.end(), [&](const CommReport& other) {
      return report.collective == other.collective && report.axis == other.axis;
    });
    if (found == to.end()) {
      to.push_back(report);
    } else {
      found->calls += report.calls;
      found->bytes += report.bytes;
    }
  }
}

Status check_vocabulary(const Graph& graph, const Dataset& dataset) {
  const std::optional<TensorId> logits = graph.find_output("logits");
  if (!logits) return {};  // compile reports the error
  const Shape& shape = graph.type(*logits).shape;
  if (shape.rank() == 0) return {};
  const int64_t vocabulary = shape[shape.rank() - 1];
  if (is_symbol(vocabulary) || dataset.largest_token() < vocabulary) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format(
          "the dataset has token id {}, the model's vocabulary has {} tokens: use the model's own tokenizer",
          dataset.largest_token(), vocabulary));
}

void warn_of_widening(const Graph& model, std::span<const std::string> widened, LogQueue& log) {
  if (widened.empty()) return;
  int64_t stored = 0, wide = 0;
  for (const std::string& name : widened) {
    const TensorType& type = model.type(*model.find_tensor(name));
    stored += bytes(type);
    wide += bytes(TensorType{DType::kF32, type.shape});
  }
  const TensorType& first = model.type(*model.find_tensor(widened.front()));
  log.add(
      2,
      format(
          "training: {} parameters that the model stores in fewer bits ({}, say) train in f32, {} instead of "
          "{}, and are saved so; adapters (--lora, tsr_model_add_adapters) keep them as they are",
          widened.size(), to_text(first.dtype), bytes_text(wide), bytes_text(stored)));
}

// Names of the parameters that an entry updates, in whichever process they lie.
std::set<std::string> written_parameters(const PlanRecord& record) {
  std::set<std::string> names;
  for (const PlannedEntry& entry : record.entries)
    for (const Update& update : entry.graph->updates()) names.insert(entry.graph->tensor(update.target).name);
  return names;
}

}  // namespace

Result<std::shared_ptr<Trainer>> Trainer::create(std::shared_ptr<Runtime> runtime,
                                                 std::shared_ptr<SharedModel> model,
                                                 std::shared_ptr<const Dataset> dataset,
                                                 const Options& options, bool has_slots) {
  std::shared_ptr<Trainer> trainer(new Trainer);
  TSR_ASSIGN_OR_RETURN(trainer->settings_, read_trainer_settings(options, dataset ? dataset->seq() : 0));
  const TrainerSettings& settings = trainer->settings_;
  if (dataset) {
    TSR_RETURN_IF_ERROR(settings.preference ? dataset->check_trainable(settings.preference->loss)
                                            : dataset->check_trainable());
    trainer->settings_.segments = segments_of(dataset->layout());
    trainer->settings_.has_weights = dataset->has_weights();
  } else if (settings.preference) {
    return Status(StatusCode::kInvalidArgument,
                  format("trainer: loss '{}' needs a dataset with rows of kind {}, and there is none",
                         name_of(settings.preference->loss),
                         is_paired(settings.preference->loss) ? "preference" : "unpaired"));
  }
  if (!settings.losses.empty() && settings.seq == 0)
    return Status(StatusCode::kInvalidArgument,
                  "trainer: option 'losses' needs 'seq', the tokens of a row, where there is no dataset");
  if (settings.adapters > 0 && !has_slots)
    return Status(StatusCode::kInvalidArgument, "trainer: option 'adapters' is of tsr_adapter_trainer_new: wanted that, or it left out");
  if (settings.adapters > 0) {
    TSR_ASSIGN_OR_RETURN(trainer->settings_.adapter_weights, adapted_weights(*model, settings.adapter_pattern));
  }
  trainer->model_ = model;
  trainer->forward_ = std::make_shared<const Graph>(model->graph());
  const Graph& forward = *trainer->forward_;
  trainer->adapters_ = adapter_summary(forward);
  const int64_t context = model->context_length();
  if (dataset) {
    TSR_RETURN_IF_ERROR(check_vocabulary(forward, *dataset));
    if (context > 0 && dataset->seq() > context)
      return Status(StatusCode::kInvalidArgument,
                    format("the dataset's samples have {} tokens, the model's context holds {}{}",
                           dataset->seq(), context, kLongerContext));
  } else if (!settings.losses.empty()) {
    TSR_RETURN_IF_ERROR(tokens_at_once(settings.seq, context, "trainer: option 'seq'").status());
  }
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_world_devices(settings.compute.devices, settings.compute.profile));
  TSR_RETURN_IF_ERROR(check_same_training(*devices, options, forward, dataset.get()));
  const bool is_language_model = trainer->is_language_model_ =
      dataset != nullptr || (!settings.losses.empty() && !forward.find_output("loss"));
  Progress unseen;  // progress of planning; the reference dominates
  std::optional<ProgressScope> planning;
  if (settings.preference) planning.emplace(unseen);
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_training(forward, is_language_model, settings, devices));
  planning.reset();
  // Draws weights of a model without values from the trainer's seed if given, else from the model's.
  const uint64_t seed = options.contains("seed") ? settings.seed : model->seed();
  trainer->parameter_seed_ = seed;
  if (settings.preference) {
    std::vector<double> reference;
    if (has_reference(settings.preference->loss)) {
      TSR_ASSIGN_OR_RETURN(reference, reference_logprobs(runtime, model, seed, *dataset, settings));
    }
    trainer->preferences_ = std::make_unique<PreferenceBatch>(*settings.preference, *dataset, settings.batch,
                                                              std::move(reference));
  }
  if (dataset) trainer->rows_ = BatchRows::of(*dataset, settings.batch);
  if (const std::string note = dataset ? dataset->note() : ""; !note.empty()) runtime->log().add(2, note);
  trainer->dataset_ = std::move(dataset);
  TSR_RETURN_IF_ERROR(trainer->run_program(runtime, std::move(devices), std::move(compiled)));
  TSR_RETURN_IF_ERROR(check_storable(trainer->checkpoint_info(true)));
  TSR_RETURN_IF_ERROR(trainer->check_eval_labels());
  if (!settings.evaluate_only)
    warn_of_widening(forward, trainer->widened_parameters(forward), runtime->log());
  return trainer;
}

Status Trainer::find_base(const SharedModel& model) {
  const std::set<std::string> written = written_parameters(running_->record());
  std::vector<std::string> names;
  for (const auto& [name, type] : running_->parameters()) {
    const bool is_frozen = !trained_.contains(name) && !written.contains(name);
    if (is_frozen) frozen_.insert(name);
    if (is_frozen || settings_.evaluate_only) names.push_back(name);
  }
  TSR_ASSIGN_OR_RETURN(base_, BaseParameters::of(model, names));
  written_.clear();
  return {};
}

Status Trainer::check_feed(std::string_view input, const HostTensor& value) const {
  const auto own = [&](std::string_view remedy) {
    return Status(StatusCode::kInvalidArgument,
                  format("input '{}' is fed by the trainer in every step: {}", input, remedy));
  };
  if (input == "lr") return own("set the rate with the options lr, schedule and warmup");
  if (input == "step") return own("it is the number of the step");
  if (input == "seed") return own("it is drawn from the option seed");
  if (dataset_ &&
      (input == "tokens" || input == "labels" || input == "loss_scale" || input == "segments" ||
       (input == "positions" && !rows_.positions.empty()) || (input == "weights" && !rows_.weights.empty())))
    return own("it comes from the dataset; to feed it, make a trainer without one of a graph with the output "
               "'loss' (tsr_graph_token_loss)");
  if (preferences_ && PreferenceBatch::is_own_input(input))
    return own("it comes from the dataset and the loss");
  for (const IndexInput& index : index_inputs_)
    if (index.name == input) return check_rows(index, value);
  return {};
}

Status Trainer::feed(std::string_view input, const HostTensor& value) {
  bool found = false;
  std::vector<std::string> names;
  for (const std::string_view entry : {kTrainEntry, kAccumulateEntry, kEvalEntry}) {
    for (std::string& name : running_->input_names(entry)) names.push_back(std::move(name));
    if (!running_->has_input(entry, input)) continue;
    if (!found) TSR_RETURN_IF_ERROR(check_feed(input, value));
    found = true;
    TSR_RETURN_IF_ERROR(running_->feed(entry, input, value));
  }
  if (found) {
    has_fed_ = true;
    loss_scale_fed_ = loss_scale_fed_ || input == "loss_scale";
    const bool is_label = std::ranges::any_of(
        index_inputs_, [&](const IndexInput& index) { return index.is_label && index.name == input; });
    if (is_label) label_count_ = count_labels(value);
    return {};
  }
  return Status(StatusCode::kNotFound, format("the graph has no input '{}'{}", input,
                                              nearest_hint(input, names)));
}

// Feeds one over the number of counted labels in the whole batch; for a
// loss without labels, or with several label inputs, one over the batch.
Status Trainer::feed_loss_scale(std::string_view entry) {
  if (loss_scale_fed_) return {};
  const int64_t inputs = std::ranges::count_if(index_inputs_, &IndexInput::is_label);
  const int64_t counted = inputs == 1 ? label_count_.value_or(0) : settings_.batch;
  return running_->feed_scalar(entry, "loss_scale",
                               1.0 / static_cast<double>(std::max<int64_t>(1, counted)));
}

std::shared_ptr<const void> Trainer::lend() const {
  std::shared_ptr<const void> lent = lent_.lock();
  if (!lent) lent_ = lent = std::make_shared<const char>();
  return lent;
}

namespace {
// Number of times that the loss scale can be halved from its maximum.
constexpr int kMostLeftOut = 64;
}  // namespace

Status Trainer::check_values() const {
  if (!weights_invalid_ && !running_->failed()) return {};
  return Status(
      kValuesLost,
      format("the values on the devices are lost ({}): resume from a checkpoint, or make a new trainer",
             weights_invalid_ ? "a resume failed midway" : "a run failed or was cancelled"));
}

Result<StepInfo> Trainer::make_step() {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_values());
  if (settings_.adapters > 0)
    return Status(StatusCode::kFailedPrecondition, "this trainer's adapters have steps of their own: wanted tsr_adapter_trainer_update");
  if (!running_->has_entry(kTrainEntry))
    return Status(StatusCode::kFailedPrecondition, "this trainer was made with evaluate_only");
  if (dataset_ && dataset_->train_samples() == 0)
    return Status(StatusCode::kFailedPrecondition,
                  "the dataset keeps all its samples for evaluation (eval_fraction)");
  const auto begin = std::chrono::steady_clock::now();
  // With a share of the cores, readers compute between the micro-batches of a step, up to its update.
  const bool shares = running_->prepared()->devices->arbiter().is_on() && running_->record().cluster.shared_cores > 0;
  StepInfo info;
  for (int left_out = 0;; ++left_out) {
    const UpdateEnd end{*this};
    if (!shares) begin_update();
    TSR_ASSIGN_OR_RETURN(info, run_step());
    if (std::isfinite(info.grad_norm)) break;
    ++skipped_;
    // The loss scale may have been too large for this step; the program has halved it.
    if (settings_.step.loss_scaling.initial != 0 && left_out < kMostLeftOut && !cancelled_) continue;
    return Status(
        kNotFinite,
        format("step {}: loss {} and gradient norm {} are not both finite; the step was left out and all "
               "values are as before; a lower lr, or a warmup, may help",
               info.step, info.loss, info.grad_norm));
  }
  ++step_;
  info.seconds = seconds_since(begin);
  last_step_ = info;
  return info;
}

void Trainer::begin_update() {
  if (!update_) update_.emplace(weight_lock_);
}

void Trainer::end_update() { update_.reset(); }

Status Trainer::set_lr(double lr) {
  if (!(lr <= 1e6))
    return Status(StatusCode::kInvalidArgument,
                  format("lr is {}, wanted at most 1e6, or below 0 for the schedule's", lr));
  lr_ = lr < 0 ? std::nullopt : std::optional(lr);
  return {};
}

Result<StepInfo> Trainer::run_step() {
  StepInfo info;
  info.step = step_ + 1;
  info.lr = lr_.value_or(settings_.rate.at(info.step));
  if (preferences_) (void)preferences_->take_metrics();  // of the cancelled step
  double weight = 0;
  if (dataset_) {
    TSR_ASSIGN_OR_RETURN(weight, find_labelled_step());
  } else {
    TSR_RETURN_IF_ERROR(check_fed_labels());
  }
  std::string_view last = kTrainEntry;
  if (settings_.accumulate == 1) {
    TSR_RETURN_IF_ERROR(feed_update(kTrainEntry, info, planned_update(settings_.step)));
    TSR_RETURN_IF_ERROR(run_batches(info, kTrainEntry, 1, weight));
  } else {
    if (Status made = run_batches(info, kAccumulateEntry, settings_.accumulate, weight); !made.ok()) {
      if (!running_->failed()) (void)clear_gradients();  // restores the state before the step
      return made;
    }
    last = kUpdateEntry;
    TSR_RETURN_IF_ERROR(feed_update(kUpdateEntry, info, planned_update(settings_.step)));
    TSR_RETURN_IF_ERROR(feed_seed(kUpdateEntry, static_cast<uint64_t>(position_)));
    TSR_RETURN_IF_ERROR(running_->run(kUpdateEntry));
  }
  TSR_ASSIGN_OR_RETURN(info.grad_norm, running_->fetch_scalar(last, "grad_norm"));
  if (preferences_) info.preference = preferences_->take_metrics();
  position_ += settings_.accumulate;
  ++runs_;
  note_measurements();
  return info;
}

// Runs the batches of a step and sums their losses in info.loss, each divided by `weight`, that of all labels.
Status Trainer::run_batches(StepInfo& info, std::string_view entry, int64_t batches, double weight) {
  for (int64_t batch = 0; batch < batches; ++batch) {
    if (batches > 1 && cancelled_)
      return Status(StatusCode::kCancelled,
                    "step cancelled between two of its batches; all values are as before");
    if (dataset_) {
      if (batches > 1) TSR_RETURN_IF_ERROR(fill_training_rows(position_ + batch));  // a single batch is in rows_ already
      TSR_RETURN_IF_ERROR(feed_training_batch(entry, training_rows(position_ + batch), weight));
    } else {
      TSR_RETURN_IF_ERROR(feed_loss_scale(entry));
    }
    TSR_RETURN_IF_ERROR(feed_seed(entry, static_cast<uint64_t>(position_ + batch)));
    TSR_RETURN_IF_ERROR(running_->run(entry));
    TSR_ASSIGN_OR_RETURN(const double loss, running_->fetch_scalar(entry, "loss"));
    info.loss += loss;
    if (preferences_) TSR_RETURN_IF_ERROR(preferences_->add_metrics(*running_, entry));
  }
  return {};
}

void Trainer::note_measurements() {
  const int64_t allocations = running_->session().allocations() - allocations_elsewhere_;
  if (runs_ == 1) allocations_at_first_ = allocations;
  allocations_after_first_ = allocations - allocations_at_first_;
  if (runs_ <= 2) memory_ = running_->session().memory();
}

void Trainer::record_touched_bytes() {
  if (memory_.empty()) return;
  const std::vector<MemoryReport> now = running_->session().memory();
  for (size_t rank = 0; rank < memory_.size(); ++rank) {
    memory_[rank].measured_bytes = now[rank].measured_bytes;
    memory_[rank].host_measured_bytes = now[rank].host_measured_bytes;
    memory_[rank].file_measured_bytes = now[rank].file_measured_bytes;
  }
}

Result<Evaluation> Trainer::make_evaluation() {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_values());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<CommReport> before = running_->session().communication();
  const int64_t allocations_before = running_->session().allocations();
  // Excludes evaluation from the training report, except its peak arena bytes.
  const auto note = [&] {
    record_touched_bytes();
    std::vector<CommReport> done = running_->session().communication();
    subtract(done, before);
    add(communication_elsewhere_, done);
    allocations_elsewhere_ += running_->session().allocations() - allocations_before;
  };
  if (dataset_) {
    Result<Evaluation> found = evaluate_dataset();
    note();
    if (found.ok()) found->seconds = seconds_since(begin);
    return found;
  }
  TSR_RETURN_IF_ERROR(check_fed_labels());
  TSR_RETURN_IF_ERROR(feed_loss_scale(kEvalEntry));
  TSR_RETURN_IF_ERROR(running_->run(kEvalEntry));
  note();
  Evaluation found;
  TSR_ASSIGN_OR_RETURN(found.loss, running_->fetch_scalar(kEvalEntry, "loss"));
  found.seconds = seconds_since(begin);
  return found;
}

Result<std::shared_ptr<const void>> Trainer::lease(std::string_view what) {
  TSR_RETURN_IF_ERROR(usable());
  const auto lease = std::make_shared<const char>();
  lease_ = lease;
  leased_for_ = what;
  cancelled_ = false;
  return std::shared_ptr<const void>(lease);
}

Status Trainer::usable() const {
  TSR_RETURN_IF_ERROR(running_->prepared()->runtime->check_process());
  if (lease_.expired()) return {};
  return Status(
      kBusy,
      format("the trainer is used by {}, which is not done: step that to its end, or free it", leased_for_));
}

Result<HostTensor> Trainer::read(std::string_view name) {
  TSR_RETURN_IF_ERROR(check_values());
  return running_->session().read(name);
}

Status Trainer::write(std::string_view name, const HostTensor& value) {
  const WeightLock::Update update(weight_lock_);
  return write_value(name, value);
}

Status Trainer::write_value(std::string_view name, const HostTensor& value) {
  base_.set_replaced(name, true);  // a failed write may have reached some devices
  if (frozen_.contains(name) && base_.find(name) == nullptr) written_.emplace(name);
  TSR_RETURN_IF_ERROR(running_->session().write(name, value));
  base_.set_replaced(name, !base_.is_own(name, value));
  return {};
}

bool Trainer::is_replaced(std::string_view parameter) const {
  return base_.is_replaced(parameter) || written_.contains(parameter);
}

void Trainer::cancel() {
  cancelled_ = true;
  const std::lock_guard lock(cancel_mutex_);
  running_->cancel();
}

int64_t Trainer::tokens_per_step() const {
  if (dataset_) return settings_.batch * settings_.accumulate * dataset_->row_tokens();
  return settings_.losses.empty() ? settings_.batch : settings_.batch * settings_.seq;
}

std::vector<MemoryReport> Trainer::memory() const {
  return memory_.empty() ? running_->session().memory() : memory_;
}

std::string Trainer::report_json() {
  TrainerReport report;
  report.step = step_;
  report.skipped_steps = skipped_;
  report.unlabelled_steps = unlabelled_;
  report.tokens_per_step = tokens_per_step();
  report.allocations_after_first_step = allocations_after_first_;
  report.memory = memory();
  report.preference = eval_preference_;
  report.communication = running_->session().communication();
  subtract(report.communication, communication_elsewhere_);
  int64_t largest = 0;
  const auto count = [&](const std::string& name, const TensorType& type, bool is_parameter) {
    const bool widens = is_parameter && is_rounded(name, type);
    const int64_t own = bytes(type), as_model = widens ? 2 * own : own;
    if (!is_parameter || !is_left_out(name)) {
      report.checkpoint_bytes += own;
      largest = std::max(largest, own);
    }
    if (is_parameter) report.model_bytes += as_model;
    // A piece in the file tier is read first; a narrow one is held until it is widened.
    report.saving_memory_bytes = std::max(report.saving_memory_bytes, widens ? own + as_model : own);
  };
  for (const auto& [name, type] : running_->parameters()) count(name, type, true);
  for (const auto& [name, type] : running_->states())
    if (!gradient_states_.contains(name)) count(name, type, false);
  report.snapshot_bytes = report.checkpoint_bytes + largest;  // a tensor is copied again to be written
  return trainer_json(report, running_->record());
}

std::string Trainer::trace_json() { return running_->trace_json(); }

}  // namespace tessera
