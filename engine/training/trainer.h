// Trainer: the body of the training loop. One thread at a time, except for `cancel`.
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
#include "engine/training/checkpoint_snapshot.h"
#include "graph/analysis/index_inputs.h"
#include "serialize/checkpoint.h"

namespace tessera {

struct StepInfo {
  int64_t step = 0;      // 1 for the first
  double loss = 0;       // before the update
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double seconds = 0;
  PreferenceMetrics preference;  // 0 with another loss
};

struct Evaluation {
  double loss = 0;      // mean over the labels
  int64_t labels = 0;   // 0: not known, in graphs of the caller's own
  int64_t correct = 0;  // labels than which no token has a higher logit
  std::optional<PreferenceMetrics> preference;  // of a preference loss, whose labels are not counted
  double seconds = 0;
};

class Trainer final : public WeightOwner {
 public:
  // `dataset` null: the graph has its own loss and its inputs are fed.
  static Result<std::shared_ptr<Trainer>> create(std::shared_ptr<Runtime> runtime,
                                                 std::shared_ptr<SharedModel> model,
                                                 std::shared_ptr<const Dataset> dataset,
                                                 const Options& options);

  // Refuses what the trainer feeds itself, and integers that number no row of what they index.
  Status feed(std::string_view input, const HostTensor& value);
  // Runs one step. A loss or gradient that is not finite is kNotFinite; the program skipped the
  // update. With a scaled loss the next batch (of a dataset; else the same again) is tried instead, as long
  // as that may help.
  Result<StepInfo> step();
  Result<Evaluation> evaluate();
  // The rate of steps to come, in place of the schedule's; below 0: the schedule's.
  Status set_lr(double lr);

  // A step in parts (option losses): gradients of batches of the caller's are added up until the update takes them.
  // Log probabilities of labels: [rows, seq].
  Result<std::vector<float>> forward(const TokenBatch& batch);
  Result<LossValue> forward_backward(const TokenBatch& batch, std::string_view loss, const Options& options);
  // The loss is sum of gradients [rows, seq] times the log probabilities of labels.
  Status backward(const TokenBatch& batch, std::span<const float> gradients);
  // The update. A norm that is not finite is kNotFinite: all values are as before, the gradients gone.
  Result<StepInfo> optimizer_step(const Options& options);

  Status save(const std::string& folder, bool optimizer = true);
  // The checkpoint that `save` puts in its place, for the holder of the lease; `cancel` ends it from then on.
  Result<WrittenCheckpoint> write_checkpoint(const std::string& folder, bool optimizer = true);
  // The checkpoint's contents in host memory, with the caller's notes: texts by key.
  Result<CheckpointSnapshot> snapshot(const Options& notes);
  static Status check_folder(const std::string& folder);  // what save would say at once
  Status resume(const std::string& folder);
  // Loads only the checkpoint's parameters: the optimizer, the schedule and the data begin again.
  Status load_parameters(const std::string& folder);
  Status store(SharedModel& model);
  // What saving the model after `store` would write; the model stays as it is, and one tensor at a time is in host
  // memory. It uses this trainer.
  Result<ModelContents> contents(std::shared_ptr<SharedModel> model);
  Status save_model(std::shared_ptr<SharedModel> model, const std::string& path, const Options& options);
  Result<HostTensor> read(std::string_view name);
  Status write(std::string_view name, const HostTensor& value);

  std::string report_json();
  std::string trace_json();
  // The last step of this trainer; nothing before the first.
  const std::optional<StepInfo>& last_step() const { return last_step_; }
  int64_t steps_made() const { return step_; }  // including those of a resumed checkpoint
  int64_t unlabelled_steps() const { return unlabelled_; }
  int64_t tokens_per_step() const;
  std::vector<MemoryReport> memory() const;  // as report_json has it
  // Settings that checkpoints record for people: "batch", "optimizer", "lr", ... as texts.
  std::map<std::string, std::string> recorded_settings() const { return checkpoint_info(true).values; }
  // Removes the plan from a checkpoint's values.
  static void forget_plan(std::map<std::string, std::string>& values);
  std::shared_ptr<const void> lend() const override;
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }  // null: inputs are fed
  bool has_usual_adapters() const { return adapters_ && adapters_->is_usual; }
  const std::shared_ptr<Runtime>& runtime() const override { return running_->prepared()->runtime; }
  // Parts for programs on the trainer's weights (trained_weights.h).
  const TrainerSettings& settings() const override { return settings_; }
  const std::shared_ptr<SharedModel>& model() const override { return model_; }
  const Graph& forward_graph() const override { return *forward_; }
  ProgramRunner& runner() const override { return *running_; }
  WeightLock& weight_lock() const override { return weight_lock_; }
  Status check_values() const override;
  std::shared_ptr<const PlanRecord> plan() const;  // with its program
  void cancel();                                   // any thread

  // While the lease that this returns lives, who has it uses the trainer, perhaps on another thread, and `usable` is
  // kBusy: `what` is in the way.
  Result<std::shared_ptr<const void>> lease(std::string_view what);
  Status usable() const override;

 private:
  Trainer() = default;
  Result<StepInfo> run_step();  // of all its batches; the program may leave the update out
  Status run_batches(StepInfo& info, std::string_view entry, int64_t batches, double weight);
  Status find_base(const SharedModel& model);
  // trainer_plan.cc
  // Loads a program in place of the present one, if any, with the model's values.
  Status run_program(std::shared_ptr<Runtime> runtime, std::shared_ptr<DeviceSet> devices, CompiledProgram compiled);
  void record_plan(CheckpointInfo& info) const;
  // Runs the checkpoint's plan from here on, where devices and options are as they were; else says why not.
  Status take_plan(const CheckpointInfo& found);
  Status check_feed(std::string_view input, const HostTensor& value) const;
  Status feed_loss_scale(std::string_view entry);  // unless the caller feeds it
  // trainer_rows.cc
  Status feed_defaults(int64_t seq,
                       std::span<const std::string> entries);  // of inputs with one value a position
  std::vector<int64_t> training_rows(int64_t batch) const;  // their numbers
  Status fill_training_rows(int64_t batch);                 // rows_
  double sum_label_weights() const;  // of the labels of rows_ that the loss of tokens counts
  bool has_labels() const;           // rows_
  // Moves position_ past steps without a label; the weight of the labels of the first step with one.
  Result<double> find_labelled_step();
  Status check_fed_labels() const;    // those that the caller fed, where the graph's loss is of labels
  Status check_eval_labels();         // those of the rows held out
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
  Status feed_batch(std::string_view entry, const TokenBatch& batch);
  Status feed_floats(std::string_view entry, std::string_view input, const TokenBatch& batch,
                     std::span<const float> values, double otherwise);
  Status feed_loss(std::string_view entry, const TokenBatch& batch, const LossOptions& options);
  Status feed_seed(std::string_view entry, uint64_t number);
  Status feed_update(std::string_view entry, const StepInfo& info);
  Status run_part(std::string_view entry);
  Result<LossValue> accumulate(std::string_view entry, const TokenBatch& batch);
  Result<std::vector<float>> fetch_logprobs(std::string_view entry, const TokenBatch& batch);
  void find_gradient_states();
  Status clear_gradients();
  Status check_update_made() const;        // kFailedPrecondition where gradients wait
  CheckpointInfo checkpoint_info(bool optimizer) const;  // its base without hashes, typed as in the program
  Result<CheckpointInfo> checkpoint_to_write(bool optimizer);  // with hashes of the base
  // Whether checkpoints leave the parameter out: no step changes it, and it has the model's own value.
  bool is_left_out(std::string_view name) const {
    return frozen_.contains(name) && base_.find(name) != nullptr && !base_.is_replaced(name);
  }
  Status check_base(const CheckpointInfo& found) const;  // names and types
  Status check_base_contents(const CheckpointInfo& found);
  Status write_value(std::string_view name, const HostTensor& value);  // in an update
  Status take(const CheckpointReader& checkpoint, std::string_view name, const TensorType& type);
  Result<HostTensor> stored_value(std::string_view name, const TensorType& type);  // as the model has it
  bool is_rounded(std::string_view name, const TensorType& type) const;
  // Parameters that are f32 here, for training, and stored in fewer bits in `model`.
  std::vector<std::string> widened_parameters(const Graph& model) const;
  void note_measurements();
  void record_touched_bytes();  // records the bytes that evaluation touched beyond training

  TrainerSettings settings_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<const Graph> forward_;
  mutable WeightLock weight_lock_;          // held by calls that change parameters
  std::optional<AdapterSummary> adapters_;  // of the model
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<ProgramRunner> running_;
  std::mutex cancel_mutex_;  // of the pointer running_, which `cancel` reads on any thread
  bool is_language_model_ = false;
  bool has_fed_ = false;                    // by the caller
  uint64_t parameter_seed_ = 0;             // of parameters that the model does not have
  mutable std::weak_ptr<const void> lent_;  // see `lend`
  std::vector<IndexInput> index_inputs_;
  std::set<std::string, std::less<>> trained_;  // names of parameters that train
  std::set<std::string, std::less<>> frozen_;   // of those that no entry writes and that do not train
  BaseParameters base_;                         // those, or with evaluate_only all
  std::set<std::string, std::less<>> gradient_states_;  // state that is 0 between steps
  int64_t accumulated_ = 0;                             // accumulations since the last update
  int64_t accumulated_labels_ = 0;                      // of them all
  double accumulated_loss_ = 0;
  double parts_s_ = 0;                    // of parts of steps since the last update
  std::vector<float> floats_;             // [batch, seq]
  bool loss_scale_fed_ = false;           // by the caller
  std::optional<int64_t> label_count_;    // of the labels fed last, where the graph has one input of labels
  BatchRows rows_;                        // of the dataset
  std::unique_ptr<PreferenceBatch> preferences_;                 // null with a loss of tokens
  std::optional<PreferenceMetrics> eval_preference_;             // of the last evaluation
  std::optional<double> lr_;                                     // in place of the schedule's
  int64_t step_ = 0;                      // updates made
  std::optional<StepInfo> last_step_;
  int64_t position_ = 0;                  // batches taken from the dataset: steps and skipped steps
  int64_t skipped_ = 0;
  int64_t unlabelled_ = 0;        // steps' worths of rows that were passed over, since no label in them counts
  bool weights_invalid_ = false;  // by a resume that failed midway: values of two trainings
  int64_t runs_ = 0;   // training runs of this object
  int64_t allocations_after_first_ = 0, allocations_at_first_ = 0, allocations_elsewhere_ = 0;
  std::vector<CommReport> communication_elsewhere_;  // of evaluations, to leave out of the report
  std::vector<MemoryReport> memory_;  // as of the second step; arenas as of the last evaluation
  std::atomic<bool> cancelled_{false};
  std::weak_ptr<const void> lease_;
  std::string leased_for_;
};

// The text of tsr_trainer_evaluate_all.
std::string evaluation_json(const Evaluation& evaluation);

// The contents of a checkpoint, documented in tessera.h at tsr_checkpoint_info.
Result<std::string> checkpoint_json(const std::string& folder);

}  // namespace tessera
