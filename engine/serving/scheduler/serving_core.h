// ServingCore: a serving program, the pages of its sequences and the
// texts in progress. The caller of `step` computes. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/program/program_runner.h"
#include "engine/program/serving_settings.h"
#include "engine/program/trained_weights.h"
#include "engine/serving/adapters/adapter_registry.h"
#include "engine/serving/adapters/adapter_slots.h"
#include "engine/serving/pages/page_pool.h"
#include "engine/serving/pages/page_transfer.h"
#include "engine/serving/scheduler/adapter_queue.h"
#include "engine/serving/scheduler/scheduler.h"
#include "engine/serving/scheduler/speculation.h"
#include "engine/serving/scheduler/step_times.h"
#include "engine/serving/texts/kept_sequence.h"
#include "engine/serving/texts/served_text.h"
#include "runtime/device_set.h"

namespace tessera {

class ServingCore {
 public:
  static Result<std::unique_ptr<ServingCore>> create(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     ServingSettings settings, DeviceShare share = {});
  // A core on a trainer's weights, devices and plan. Every update of the trainer restarts all texts from their tokens.
  static Result<std::unique_ptr<ServingCore>> create(std::shared_ptr<const TrainedWeights> weights,
                                                     ServingSettings settings);
  // A core around a loaded program, with finalized settings. trained: the trainer's weights; null: the model's.
  static Result<std::unique_ptr<ServingCore>> create(std::unique_ptr<ProgramRunner> running,
                                                     std::shared_ptr<SharedModel> model,
                                                     ServingSettings settings,
                                                     std::shared_ptr<const TrainedWeights> trained = nullptr);
  // A core on another share of the devices, with the same settings, plan and adapters, and its own pages.
  Result<std::unique_ptr<ServingCore>> replicate(DeviceShare share) const;

  // Loads an adapter from a file or a model (adapter_factors.h lists the refused
  // kinds) and returns its unique number. Host memory is the only limit. Any thread.
  Result<int64_t> load_adapter(const std::string& path);
  Result<int64_t> load_adapter(const SharedModel& adapted);
  Result<int64_t> load_adapter(WeightOwner& trainer);  // its present values; one thread for each trainer
  Result<int64_t> load_adapter(AdapterFactors factors);
  // Refuses the adapter to new requests; it is freed with its last text. kNotFound. Any thread.
  Status drop_adapter(int64_t adapter) { return adapters_->drop(adapter); }
  const AdapterRegistry& adapters() const { return *adapters_; }

  // Creates the texts of a request, named `number` in events. kInvalidArgument for empty prompts, tokens outside
  // the vocabulary, and prompts longer than the context or the pages; kNotFound for unknown adapters. Any thread.
  using Texts = std::vector<std::unique_ptr<ServedText>>;
  Result<Texts> make_texts(const ServingRequest& request, int64_t number) const;
  // Schedules the texts.
  void add(Texts texts);
  // Ends a request's texts, with an event each; no effect on an ended request.
  void cancel(int64_t request, std::vector<ServingEvent>& events);
  // Draws the text's token from these logits (empty: its own). kNotFound if the text does not wait for them.
  Status answer(int64_t request, int32_t index, std::span<const float> logits,
                std::vector<ServingEvent>& events);
  // The logits of a waiting text, else empty.
  std::span<const float> kept_logits(int64_t request, int32_t index) const;
  // Computes a step and appends its events; false: nothing to compute.
  Result<bool> step(std::vector<ServingEvent>& events);
  // Ends all texts with this failure and resets the memory.
  Status recover(const Status& failure, std::vector<ServingEvent>& events);
  // Ends the step in progress and all later ones with kCancelled. Any thread.
  void stop();
  bool is_idle() const { return texts_.empty(); }
  // Texts in progress, and an estimate of their remaining tokens.
  int64_t texts() const { return std::ssize(texts_); }
  int64_t expected_tokens() const;
  // Removes the texts of the most important request of which none has begun; empty if all
  // waiting texts have room. Another core of the model may `add` them. Between steps.
  Texts take_waiting();
  // Number of first tokens cached under this root. Any thread; the pages may be evicted afterwards.
  int64_t count_cached(uint64_t root, std::span<const int32_t> tokens) const;
  // Whether results are independent of the other requests in a batch: true on CPU devices.
  bool is_batch_invariant() const { return batch_invariant_; }

  // Saves a sequence (kept_sequence.h): any tokens, with the pages cached under `root`. Between
  // steps. kInvalidArgument for tokens outside the vocabulary, and files of other models.
  Status save_sequence(std::span<const int32_t> tokens, uint64_t root, const std::string& path);
  // Restores a saved sequence. root: required root of the file; nullopt: any. Pages in use are not evicted.
  Result<KeptSequence> restore_sequence(const std::string& path, std::optional<uint64_t> root = {});

  struct Counts {
    int64_t steps = 0, tokens = 0, preemptions = 0;
    int64_t reused = 0;  // cached tokens reused, and those of them copied to another page
    int64_t copied = 0;
    int64_t drafted = 0, accepted = 0;  // tokens proposed, and those accepted
    int64_t running = 0, waiting = 0, pages = 0, free_pages = 0;
    int64_t window_pages = 0, free_window_pages = 0;
    double draft_seconds = 0;                    // of the draft model
    int64_t adapters = 0, adapters_written = 0;  // loaded, and slot writes since the beginning
  };
  Counts counts() const;
  ProgramRunner& runner() { return *running_; }
  std::vector<ProgramRunner*> runners();  // that one and the draft model's, if there is one
  // The first row of logits of the last step that had any; valid until the next step.
  std::span<const float> last_logits() const;
  std::vector<MemoryReport> draft_memory() const;  // of the draft model; none without
  const ServingSettings& settings() const { return settings_; }
  const ServedText::Model& text_model() const { return text_model_; }

 private:
  explicit ServingCore(ServingSettings settings);
  static Result<std::unique_ptr<ServingCore>> create(std::unique_ptr<ProgramRunner> running,
                                                     std::shared_ptr<SharedModel> model,
                                                     ServingSettings settings,
                                                     std::unique_ptr<DraftModel> draft,
                                                     std::shared_ptr<AdapterRegistry> adapters);
  Status check_adapters() const;
  Status check_same_weights() const;  // kUnsupported if they have changed
  // Locks the trainer's weights for reading; nullopt without a trainer.
  Result<std::optional<WeightLock::Reading>> hold_weights();
  Status take_turn(std::optional<CoreArbiter::Turn>& turn);
  Status check_prompt(const ServingRequest& request, int64_t most) const;

  // Wanted: the rows of logits behind `count` tokens of a text, from token `first` on.
  struct Wanted {
    ServedText* text;
    int64_t first, count;
  };
  // WantedHidden: the hidden states of `count` tokens of a text, at the step's tokens from `at` on.
  struct WantedHidden {
    ServedText* text;
    int64_t at, count;
  };
  // ComputedPart: a text's part of a step, for the draft block.
  struct ComputedPart {
    ServedText* text;
    int64_t first, count;
    bool has_drafts;
  };
  struct StepResults {
    std::vector<Wanted> logits;
    std::vector<WantedHidden> hidden;
  };
  Status run(const std::vector<StepPart>& parts, StepResults& results);
  void fill_tables(const Sequence& sequence);
  DraftModel* draft_model() const;  // null without one
  // Restarts sequences that outgrew their row of RoPE factors.
  void follow_rope_switch();
  Status propose_drafts(std::span<ServedText* const> decoding);
  void take_rows(const Wanted& wanted, std::span<const float> rows, std::vector<ServingEvent>& events);
  void take_results(const StepResults& results, std::vector<ServingEvent>& events);
  // Passes the hidden states of a step to the draft block, after its results were taken.
  std::vector<ComputedPart> computed_parts(std::span<const StepPart> parts) const;
  Status pass_hidden(std::span<const ComputedPart> parts);
  ServedText& text_of(const Sequence& sequence) const { return *texts_.find(sequence.number)->second; }
  Status check_tokens(std::span<const int32_t> tokens) const;
  ServedText* find(int64_t request, int32_t index) const;
  void remove_ended();

  const ServingSettings settings_;
  const std::vector<ServingEntry> entries_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<const TrainedWeights> trained_;  // null: the weights are the model's
  int64_t weights_version_ = -1;                   // version of the weights that computed the pages
  std::unique_ptr<ProgramRunner> running_;
  std::unique_ptr<PageTransfer> transfer_;
  ServedText::Model text_model_;
  bool batch_invariant_ = false;
  std::atomic<bool> is_stopped_{false};
  int64_t rope_switch_ = 0;  // length from which the second row of RoPE factors applies; 0: one row
  std::shared_ptr<AdapterRegistry> adapters_;  // shared by all cores of an engine, so numbers are unique
  std::unique_ptr<AdapterSlots> adapter_slots_;
  std::unique_ptr<AdapterQueue> adapter_queue_;
  PagePool pool_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<ServedText>> texts_;  // by sequence number
  int64_t next_ = 0;
  Counts counts_;
  StepTimes step_times_;
  double step_seconds_ = 0;                   // of the last step
  std::unique_ptr<Speculation> speculation_;  // null without speculation
  // Buffers reused by every step.
  std::vector<int32_t> table_, window_table_;  // window_table_: empty without window pages
  std::vector<float> logits_, hidden_;
  ServedScratch scratch_;
};

}  // namespace tessera
