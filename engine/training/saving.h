// Saving: a trainer's checkpoint, written by its own thread. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "engine/base/background.h"
#include "engine/training/trainer.h"

namespace tessera {

class Saving {
 public:
  static Result<std::unique_ptr<Saving>> create(std::shared_ptr<Trainer> trainer, const std::string& folder);
  // Saves a copy: the trainer is free when this returns.
  static Result<std::unique_ptr<Saving>> create_of_snapshot(const std::shared_ptr<Trainer>& trainer,
                                                            const std::string& folder, const Options& notes);
  ~Saving();  // cancels it

  Status step();
  double done() const { return work_.done(); }
  WorkProgress progress() const { return work_.progress(); }
  Status finish();  // waits until the folder holds the checkpoint
  bool in_creating_process() const { return runtime_->in_creating_process(); }

 private:
  Saving(std::shared_ptr<Trainer> trainer, std::shared_ptr<const void> lease, const std::string& folder);
  Saving(std::shared_ptr<Runtime> runtime, CheckpointSnapshot snapshot, const std::string& folder);

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Trainer> trainer_;  // null for a snapshot
  std::shared_ptr<const void> lease_;       // the trainer's lease; null after the work has ended
  Background<WrittenCheckpoint> work_;
};

}  // namespace tessera
