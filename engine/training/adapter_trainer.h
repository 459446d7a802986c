// AdapterTrainer: many low-rank adapters trained side by side over one frozen model (graph/transform/adapter_slots.h). Each has
// its own rows, rank, alpha, weights, step, optimizer state and settings; batches mix rows of all that wait, by turns. An
// adapter's values are those that it would have alone, to the bit under one plan. One thread at a time, except `cancel`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/training/adapter_pass.h"
#include "engine/training/adapter_turns.h"
#include "engine/training/slot_adapter.h"
#include "engine/training/trainer.h"

namespace tessera {

class AdapterTrainer {
 public:
  // Options: those of Trainer::create, with `adapters` and `losses`.
  static Result<std::shared_ptr<AdapterTrainer>> create(std::shared_ptr<Runtime> runtime,
                                                        std::shared_ptr<SharedModel> model, const Options& options);

  // Adds an adapter with the options of add_adapters, and `seed` of its first values and of dropout. kBusy: all slots are taken.
  Result<int64_t> add(const Options& options);
  // Adds the adapter of a checkpoint, of `save` or of a trainer of a model with adapters, with its optimizer state and step,
  // or with new ones.
  Result<int64_t> load(const std::string& folder, bool optimizer);
  // Its passes that wait are gone.
  Status drop(int64_t adapter);
  // A checkpoint as a trainer of the model with this adapter alone would write it.
  Status save(int64_t adapter, const std::string& folder);
  // The model with this adapter.
  Result<std::shared_ptr<SharedModel>> model_of(int64_t adapter);

  // Each queues a pass and returns its number. Batches have any number of rows, of up to the option seq tokens.
  Result<int64_t> queue_forward(int64_t adapter, const TokenBatch& batch);
  Result<int64_t> queue_loss(int64_t adapter, const TokenBatch& batch, std::string_view loss, const Options& options);
  Result<int64_t> queue_gradients(int64_t adapter, const TokenBatch& batch, std::span<const float> gradients);
  Result<int64_t> queue_update(int64_t adapter, const Options& options);
  // Drops a pass that is not finished. Gradients of its rows that are done stay, until the adapter's next update.
  Status cancel_pass(int64_t pass);

  // The next finished pass, after as many runs as it takes; nullopt: none waits.
  Result<std::optional<FinishedPass>> next();

  std::string report_json();
  Status usable() const { return trainer_->usable(); }
  const Runtime& runtime() const { return *trainer_->runtime(); }
  void cancel() { trainer_->cancel(); }  // any thread

 private:
  // Tenant: an adapter in its slot.
  struct Tenant {
    int32_t slot = 0;
    SlotAdapter adapter;
    int64_t step = 0;
    uint64_t seed = 0;  // of dropout
    // Since its last update. `parts`: passes with gradients that were begun.
    int64_t batches = 0, labels = 0, parts = 0;
    double loss = 0;
    int64_t forward_tokens = 0, trained_tokens = 0;  // of rows with padding
    std::deque<AdapterPass> passes = {};
  };
  AdapterTrainer() = default;

  Result<Tenant*> find(int64_t adapter);
  Result<int32_t> free_slot() const;
  Result<int64_t> settle(SlotAdapter adapter, int64_t step, uint64_t seed);
  Result<int64_t> queue(int64_t adapter, AdapterPass pass);
  // Runs the update that is a tenant's first pass.
  Result<FinishedPass> updated(Tenant& tenant);
  Result<LossValue> run(const AdapterPass& first, const SharedRows& rows);
  void run_rows(const AdapterPass& first);
  void take_rows(Tenant& tenant, int64_t rows, const LossValue& value, size_t first, int64_t seq);
  void finish(Tenant& tenant, FinishedPass result);
  Status clear_gradients(const Tenant& tenant);
  std::vector<std::pair<std::string, TensorType>> slot_tensors() const;

  std::shared_ptr<Trainer> trainer_;
  std::map<int64_t, Tenant> tenants_;
  AdapterTurns turns_;
  std::deque<FinishedPass> finished_;
  int64_t next_adapter_ = 0, next_pass_ = 0;
  int64_t queued_tokens_ = 0;
  int64_t runs_ = 0, rows_run_ = 0;
};

}  // namespace tessera
