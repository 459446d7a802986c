// Trainer: the body of the training loop. One thread at a time, except `cancel`.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/token_batch.h"
#include "engine/model/adapters.h"
#include "engine/model/base_parameters.h"
#include "engine/model/model_contents.h"
#include "engine/model/weight_lock.h"
#include "engine/program/batch_rows.h"
#include "engine/program/preference_batch.h"
#include "engine/program/program_runner.h"
#include "engine/program/trained_weights.h"
#include "engine/settings/trainer_settings.h"
#include "engine/settings/update_settings.h"
#include "engine/training/checkpoint_snapshot.h"
#include "graph/analysis/index_inputs.h"
#include "serialize/checkpoint.h"

namespace tessera {

struct StepInfo {
  int64_t step = 0;      // from 1
  double loss = 0;       // before the update
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double seconds = 0;
  PreferenceMetrics preference = {};  // 0 for other losses
};

struct Evaluation {
  double loss = 0;      // mean over the labels
  int64_t labels = 0;   // 0: unknown, in custom graphs
  int64_t correct = 0;  // labels with the highest logit
  std::optional<PreferenceMetrics> preference;  // for a preference loss, whose labels are not counted
  double seconds = 0;
};

class Trainer final : public WeightOwner {
 public:
  // `dataset` null: the graph has its own loss, and the caller feeds its inputs. `has_slots`: of an AdapterTrainer.
  static Result<std::shared_ptr<Trainer>> create(std::shared_ptr<Runtime> runtime,
                                                 std::shared_ptr<SharedModel> model,
                                                 std::shared_ptr<const Dataset> dataset,
                                                 const Options& options, bool has_slots = false);

  // Refuses inputs that the trainer feeds itself, and indices out of range.
  Status feed(std::string_view input, const HostTensor& value);
  // Runs one step. kNotFinite for a loss or gradient that is not
  // finite; the update is then skipped. With loss scaling the next batch
  // (without a dataset: the same one) is tried while that may help.
  Result<StepInfo> step();
  Result<Evaluation> evaluate();
  // Sets the learning rate of the next steps; negative: the schedule's.
  Status set_lr(double lr);

  // A partial step (option losses): gradients of the caller's batches accumulate
  // until the update. Returns log probabilities of labels [rows, seq].
  Result<std::vector<float>> forward(const TokenBatch& batch);
  Result<LossValue> forward_backward(const TokenBatch& batch, std::string_view loss, const Options& options);
  // Accumulates gradients of the loss sum(gradients [rows, seq] * log probabilities of labels).
  Status backward(const TokenBatch& batch, std::span<const float> gradients);
  // The same, with the loss and log probabilities.
  Result<LossValue> add_gradients(const TokenBatch& batch, std::span<const float> gradients);
  // The errors of these calls, for a batch of any number of rows, before rows of several batches are mixed.
  Result<LossOptions> check_loss(const TokenBatch& batch, std::string_view loss, const Options& options) const;
  Status check_gradients(const TokenBatch& batch, std::span<const float> gradients) const;
  Status check_batch(const TokenBatch& batch, std::span<const float> gradients) const;
  // The update of the adapter in a slot (option adapters), of step info.step; returns the gradient norm, which is not finite
  // where nothing was updated.
  Result<double> update_slot(int32_t slot, const StepInfo& info, const UpdateSettings& settings);
  // Updates the parameters. kNotFinite for a norm that is not finite: values are unchanged, gradients are dropped.
  Result<StepInfo> optimizer_step(const Options& options);

  Status save(const std::string& folder, bool optimizer = true);
  // Writes the checkpoint that `save` moves into place. Called by the lease's holder; `cancel` ends it.
  Result<WrittenCheckpoint> write_checkpoint(const std::string& folder, bool optimizer = true);
  // Copies the checkpoint's contents to host memory, with the caller's notes by key.
  Result<CheckpointSnapshot> snapshot(const Options& notes);
  Result<CheckpointSnapshot> snapshot_here(const Options& notes);  // called within `lead`
  static Status check_folder(const std::string& folder);  // errors that save would return at once
  Result<CheckpointInfo> checkpoint_to_write(bool optimizer);  // with hashes of the base
  Status check_same_base(const CheckpointInfo& found);         // of a checkpoint, names, types and contents
  Status resume(const std::string& folder);
  // Loads only the checkpoint's parameters; optimizer, schedule and data start over.
  Status load_parameters(const std::string& folder);
  Status store(SharedModel& model);
  // The model's contents after `store`, one tensor at a time
  // in host memory; the model is unchanged. Uses this trainer.
  Result<ModelContents> contents(std::shared_ptr<SharedModel> model);
  Status save_model(std::shared_ptr<SharedModel> model, const std::string& path, const Options& options);
  Result<HostTensor> read(std::string_view name);
  Status write(std::string_view name, const HostTensor& value);

  // Session::lead: `work` runs in the first process alone, and may read this trainer's values; all processes get its text or error.
  Result<std::string> lead(const std::function<Result<std::string>()>& work) { return running_->session().lead(work); }
  Status lead_status(const std::function<Status()>& work);
  Result<bool> agree(bool value);  // the first process' value, in all
  bool is_first_process() const { return runtime()->is_first_process(); }
  // Ends the calls of the other processes with this error of one, unless all have it.
  void end_world(const Status& why);

  std::string report_json();
  std::string trace_json();
  // The last step of this trainer; nullopt before the first.
  const std::optional<StepInfo>& last_step() const { return last_step_; }
  int64_t steps_made() const { return step_; }  // including those of a resumed checkpoint
  int64_t unlabelled_steps() const { return unlabelled_; }
  int64_t tokens_per_step() const;
  std::vector<MemoryReport> memory() const;  // as report_json has it
  // Settings that checkpoints record for readers: "batch", "optimizer", "lr", ...
  std::map<std::string, std::string> recorded_settings() const { return checkpoint_info(true).values; }
  // Removes the plan from a checkpoint's values.
  static void forget_plan(std::map<std::string, std::string>& values);
  std::shared_ptr<const void> lend() const override;
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }  // null: the caller feeds the inputs
  bool has_usual_adapters() const { return adapters_ && adapters_->is_usual; }
  const std::shared_ptr<Runtime>& runtime() const override { return running_->prepared()->runtime; }
  // Used by programs on the trainer's weights (trained_weights.h).
  const TrainerSettings& settings() const override { return settings_; }
  const std::shared_ptr<SharedModel>& model() const override { return model_; }
  const Graph& forward_graph() const override { return *forward_; }
  ProgramRunner& runner() const override { return *running_; }
  WeightLock& weight_lock() const override { return weight_lock_; }
  Status check_values() const override;
  uint64_t parameter_seed() const override { return parameter_seed_; }
  bool is_frozen(std::string_view parameter) const override { return frozen_.contains(parameter); }
  bool is_replaced(std::string_view parameter) const override;
  Result<HostTensor> present_value(std::string_view parameter) override;
  std::shared_ptr<const PlanRecord> plan() const;  // with its program
  void cancel();                                   // any thread

  // Leases the trainer to the holder of the result, perhaps on another
  // thread. Meanwhile `usable` is kBusy and names `what`.
  Result<std::shared_ptr<const void>> lease(std::string_view what);
  Status usable() const override;

 private:
  Trainer() = default;
  // kFailedPrecondition where processes differ in the options, the model's graph or the data.
  static Status check_same_training(const DeviceSet& devices, const Options& options, const Graph& forward, const Dataset* dataset);
  Result<StepInfo> make_step();
  Result<Evaluation> make_evaluation();
  Result<StepInfo> run_step();  // runs all batches; the program may skip the update
  // Excludes readers of the weights until `end_update`; no effect if they are.
  void begin_update();
  void end_update();
  // UpdateEnd: calls end_update.
  struct UpdateEnd {
    Trainer& trainer;
    ~UpdateEnd() { trainer.end_update(); }
  };
  Status run_batches(StepInfo& info, std::string_view entry, int64_t batches, double weight);
  Status find_base(const SharedModel& model);
  // trainer_plan.cc
  // Loads a program instead of the present one, with the model's values.
  Status run_program(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceSet> devices, CompiledProgram compiled);
  void record_plan(CheckpointInfo& info) const;
  // Switches to the checkpoint's plan if devices and options are unchanged; else returns the reason.
  Status take_plan(const CheckpointInfo& found);
  Status check_feed(std::string_view input, const HostTensor& value) const;
  Status feed_loss_scale(std::string_view entry);  // unless fed by the caller
  // trainer_rows.cc
  Status feed_defaults(int64_t seq,
                       std::span<const std::string> entries);  // for inputs with one value a position
  std::vector<int64_t> training_rows(int64_t batch) const;  // row numbers
  Status fill_training_rows(int64_t batch);                 // rows_
  double sum_label_weights() const;  // of labels in rows_ that count in the token loss
  bool has_labels() const;           // rows_
  // Moves position_ past steps without labels; returns the label weight of the first step with one.
  Result<double> find_labelled_step();
  Status check_fed_labels() const;    // labels fed by the caller, if the graph's loss has labels
  Status check_eval_labels();         // labels of held-out rows
  Status feed_training_batch(std::string_view entry, std::span<const int64_t> numbers, double weight);
  Status feed_eval_batch(int64_t first, int64_t rows, double scale, int64_t samples);
  Status feed_preferences(std::string_view entry, std::span<const int64_t> numbers, int64_t count,
                          double share, double token_share);
  int64_t evaluated_samples() const;
  Result<double> sum_eval_weights(int64_t samples);
  Result<Evaluation> evaluate_dataset();
  Result<int64_t> count_predicted();
  // trainer_parts.cc
  Status check_parts(std::string_view entry) const;
  Status check_row(const TokenBatch& batch) const;
  Status feed_batch(std::string_view entry, const TokenBatch& batch);
  Status feed_slots(std::string_view entry, const TokenBatch& batch);
  Status feed_floats(std::string_view entry, std::string_view input, const TokenBatch& batch,
                     std::span<const float> values, double otherwise);
  Status feed_loss(std::string_view entry, const TokenBatch& batch, const LossOptions& options);
  Status feed_seed(std::string_view entry, uint64_t number);
  Status feed_update(std::string_view entry, const StepInfo& info, const UpdateSettings& settings);
  Status run_part(std::string_view entry);
  Result<LossValue> accumulate(std::string_view entry, const TokenBatch& batch);
  Result<std::vector<float>> fetch_logprobs(std::string_view entry, const TokenBatch& batch);
  void find_gradient_states();
  Status clear_gradients();
  Status check_update_made() const;        // kFailedPrecondition while gradients are accumulated
  CheckpointInfo checkpoint_info(bool optimizer) const;  // without hashes of the base; types of the program
  // Whether checkpoints omit the parameter: it is unchanged by steps and equals the model's value.
  bool is_left_out(std::string_view name) const {
    return frozen_.contains(name) && base_.find(name) != nullptr && !base_.is_replaced(name);
  }
  Status check_base(const CheckpointInfo& found) const;  // of names and types
  Status check_base_contents(const CheckpointInfo& found);
  Status write_value(std::string_view name, const HostTensor& value);  // in an update
  Result<WrittenCheckpoint> write_here(const std::string& folder, bool optimizer);  // in this process
  Status take(const CheckpointReader& checkpoint, std::string_view name, const TensorType& type);
  Result<HostTensor> stored_value(std::string_view name, const TensorType& type);  // in the model's type
  bool is_rounded(std::string_view name, const TensorType& type) const;
  // Parameters that train in f32 and are stored in fewer bits in `model`.
  std::vector<std::string> widened_parameters(const Graph& model) const;
  void note_measurements();
  void record_touched_bytes();  // bytes that evaluation touches in addition to training

  TrainerSettings settings_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<const Graph> forward_;
  mutable WeightLock weight_lock_;          // held by calls that change parameters
  std::optional<WeightLock::Update> update_;  // of a step; runs begin it in any of their threads
  std::optional<AdapterSummary> adapters_;  // of the model
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<ProgramRunner> running_;
  std::mutex cancel_mutex_;  // guards the pointer running_, which `cancel` reads on any thread
  bool is_language_model_ = false;
  bool has_fed_ = false;                    // by the caller
  uint64_t parameter_seed_ = 0;             // seed of parameters without a value in the model
  mutable std::weak_ptr<const void> lent_;  // see `lend`
  std::vector<IndexInput> index_inputs_;
  std::set<std::string, std::less<>> trained_;  // names of parameters that train
  std::set<std::string, std::less<>> frozen_;   // parameters that no entry writes and that do not train
  BaseParameters base_;                         // frozen parameters, or all with evaluate_only
  std::set<std::string, std::less<>> written_;  // frozen parameters that are not in base_, and were written
  std::set<std::string, std::less<>> gradient_states_;  // state that is 0 between steps
  int64_t accumulated_ = 0;                             // accumulations since the last update
  int64_t accumulated_labels_ = 0;                      // of all of them
  double accumulated_loss_ = 0;
  double parts_s_ = 0;                    // seconds of partial steps since the last update
  std::vector<float> floats_;             // [batch, seq]
  bool loss_scale_fed_ = false;           // by the caller
  std::optional<int64_t> label_count_;    // labels fed last, if the graph has one input of labels
  BatchRows rows_;                        // rows of the dataset
  std::unique_ptr<PreferenceBatch> preferences_;                 // null for a token loss
  std::optional<PreferenceMetrics> eval_preference_;             // of the last evaluation
  std::optional<double> lr_;                                     // overrides the schedule
  int64_t step_ = 0;                      // updates made
  std::optional<StepInfo> last_step_;
  int64_t position_ = 0;                  // batches taken from the dataset, by steps and skipped steps
  int64_t skipped_ = 0;
  int64_t unlabelled_ = 0;        // steps skipped because no label of their rows counts
  bool weights_invalid_ = false;  // a resume failed midway: values of two trainings are mixed
  int64_t runs_ = 0;   // training runs of this object
  int64_t allocations_after_first_ = 0, allocations_at_first_ = 0, allocations_elsewhere_ = 0;
  std::vector<CommReport> communication_elsewhere_;  // of evaluations, excluded from the report
  std::vector<MemoryReport> memory_;  // after the second step; arenas after the last evaluation
  std::atomic<bool> cancelled_{false};
  std::weak_ptr<const void> lease_;
  std::string leased_for_;
};

// The text returned by tsr_trainer_evaluate_all.
std::string evaluation_json(const Evaluation& evaluation);

// Whether a checkpoint was written without optimizer state.
bool holds_parameters_alone(const CheckpointInfo& info);
// The contents of a checkpoint, documented in tessera.h at tsr_checkpoint_info.
Result<std::string> checkpoint_json(const std::string& folder);

}  // namespace tessera
