// ServingCore: a program of serving entries, the pages of its sequences, and the texts that are being made. The
// caller of `step` computes. One thread at a time.
#pragma once

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
  // A core of finalized settings around their program in memory. trained: whose weights it reads; null: the model's.
  static Result<std::unique_ptr<ServingCore>> create(std::unique_ptr<ProgramRunner> running,
                                                     std::shared_ptr<SharedModel> model,
                                                     ServingSettings settings,
                                                     std::shared_ptr<const TrainedWeights> trained = nullptr);
  // A core on another share of the devices: with the settings, the plan and the adapters of this one, and pages of its own.
  Result<std::unique_ptr<ServingCore>> replicate(DeviceShare share) const;

  // An adapter of the model for requests (adapter_factors.h says which are refused): the file of one, or a model with it. Its
  // number is never another's; there may be as many as host memory holds. Any thread.
  Result<int64_t> load_adapter(const std::string& path);
  Result<int64_t> load_adapter(const SharedModel& adapted);
  Result<int64_t> load_adapter(AdapterFactors factors);
  // New requests may not use it from here on; it is freed when the last one that does has ended. kNotFound. Any thread.
  Status drop_adapter(int64_t adapter) { return adapters_->drop(adapter); }
  const AdapterRegistry& adapters() const { return *adapters_; }

  // The texts of a request, which its events call `number`. kInvalidArgument for empty prompts, tokens outside the
  // vocabulary, and what does not fit the context or the pages; kNotFound for adapters that are not there. Any thread.
  using Texts = std::vector<std::unique_ptr<ServedText>>;
  Result<Texts> make_texts(const ServingRequest& request, int64_t number) const;
  // From here on they are computed.
  void add(Texts texts);
  // Ends a request's texts, each of which has an event then; no effect on one that has ended.
  void cancel(int64_t request, std::vector<ServingEvent>& events);
  // The text draws its token from these logits (empty: from its own). kNotFound where it does not wait for that.
  Status answer(int64_t request, int32_t index, std::span<const float> logits,
                std::vector<ServingEvent>& events);
  // Logits that a text waits with; empty where it does not.
  std::span<const float> kept_logits(int64_t request, int32_t index) const;
  // Computes a step and adds its events; false where there is nothing to compute.
  Result<bool> step(std::vector<ServingEvent>& events);
  // Ends all texts with this failure, and makes the memory as it was at first.
  Status recover(const Status& failure, std::vector<ServingEvent>& events);
  bool is_idle() const { return texts_.empty(); }
  // Texts that have not ended, and the tokens that are likely to be computed of them still.
  int64_t texts() const { return std::ssize(texts_); }
  int64_t expected_tokens() const;
  // Takes away the texts of the most important request none of which has begun; none where those that wait need no room.
  // Another core over the model may `add` them. Between steps.
  Texts take_waiting();
  // How many of the first tokens pages hold, of texts of this root. Any thread: they may be gone afterwards.
  int64_t count_cached(uint64_t root, std::span<const int32_t> tokens) const;
  // Whether what a request yields does not depend on who else is served: on CPU devices.
  bool is_batch_invariant() const { return batch_invariant_; }

  // A sequence as a value (kept_sequence.h): tokens, of any request or none, whose pages are those of `root`. Between
  // steps. kInvalidArgument for tokens outside the vocabulary, and files of other models.
  Status save_sequence(std::span<const int32_t> tokens, uint64_t root, const std::string& path);
  // root: what the file's is wanted to be; nothing: any. Pages in use keep what they hold.
  Result<KeptSequence> restore_sequence(const std::string& path, std::optional<uint64_t> root = {});

  struct Counts {
    int64_t steps = 0, tokens = 0, preemptions = 0;
    int64_t reused = 0;  // tokens that were in pages already, and of these those copied to another page
    int64_t copied = 0;
    int64_t drafted = 0, accepted = 0;  // tokens computed along, and those that came true
    int64_t running = 0, waiting = 0, pages = 0, free_pages = 0;
    int64_t window_pages = 0, free_window_pages = 0;
    double draft_seconds = 0;                    // of the draft model
    int64_t adapters = 0, adapters_written = 0;  // loaded, and into slots since the beginning
  };
  Counts counts() const;
  ProgramRunner& runner() { return *running_; }
  // Row of logits that the last step with any gave first; it stays until the next step.
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
  Status check_same_weights() const;  // kUnsupported where they change
  // Keeps the trainer's weights as they are while the result lives. Nothing without a trainer.
  Result<std::optional<WeightLock::Reading>> hold_weights();
  Status check_prompt(const ServingRequest& request, int64_t most) const;

  // Rows of logits: one behind each of `count` tokens of a text from `first` on.
  struct Wanted {
    ServedText* text;
    int64_t first, count;
  };
  // Rows of hidden states: of `count` tokens of a text, which are tokens `at` and further of the step.
  struct WantedHidden {
    ServedText* text;
    int64_t at, count;
  };
  struct StepResults {
    std::vector<Wanted> logits;
    std::vector<WantedHidden> hidden;
  };
  Status run(const std::vector<StepPart>& parts, StepResults& results);
  void fill_tables(const Sequence& sequence);
  DraftModel* draft_model() const;  // null without one
  // Restarts sequences that have become too long for the factors that they were rotated by.
  void follow_rope_switch();
  Status propose_drafts(std::span<ServedText* const> decoding);
  void take_rows(const Wanted& wanted, std::span<const float> rows, std::vector<ServingEvent>& events);
  void take_results(const StepResults& results, std::vector<ServingEvent>& events);
  ServedText& text_of(const Sequence& sequence) const { return *texts_.find(sequence.number)->second; }
  Status check_tokens(std::span<const int32_t> tokens) const;
  ServedText* find(int64_t request, int32_t index) const;
  void remove_ended();

  const ServingSettings settings_;
  const std::vector<ServingEntry> entries_;
  std::shared_ptr<SharedModel> model_;
  std::shared_ptr<const TrainedWeights> trained_;  // null: the weights are the model's
  int64_t weights_version_ = -1;                   // version of the trained weights that the pages are of
  std::unique_ptr<ProgramRunner> running_;
  std::unique_ptr<PageTransfer> transfer_;
  ServedText::Model text_model_;
  bool batch_invariant_ = false;
  int64_t rope_switch_ = 0;  // tokens of a sequence beyond which other factors rotate it; 0: none do
  std::shared_ptr<AdapterRegistry> adapters_;  // shared by the cores of an engine: one number everywhere
  std::unique_ptr<AdapterSlots> adapter_slots_;
  std::unique_ptr<AdapterQueue> adapter_queue_;
  PagePool pool_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<ServedText>> texts_;  // by their sequences' numbers
  int64_t next_ = 0;
  Counts counts_;
  StepTimes step_times_;
  double step_seconds_ = 0;                   // of the last step
  std::unique_ptr<Speculation> speculation_;  // null without guesses
  // Memory that every step uses.
  std::vector<int32_t> table_, window_table_;  // the latter is empty without window pages
  std::vector<float> logits_, hidden_;
  ServedScratch scratch_;
};

}  // namespace tessera
