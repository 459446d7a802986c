// Saving: a trainer's checkpoint, written by a thread of its own. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "capi/engine/background.h"
#include "capi/engine/trainer.h"

namespace tessera {

class Saving {
 public:
  static Result<std::unique_ptr<Saving>> create(std::shared_ptr<Trainer> trainer, const std::string& folder);
  ~Saving();  // cancels it

  Status step();
  double done() const { return work_.done(); }
  Status finish();  // the folder holds the checkpoint
  bool in_creating_process() const { return trainer_->runtime()->in_creating_process(); }

 private:
  Saving(std::shared_ptr<Trainer> trainer, std::shared_ptr<const void> lease, const std::string& folder);

  const std::shared_ptr<Trainer> trainer_;
  std::shared_ptr<const void> lease_;  // of the trainer; null when the work has ended
  Background<WrittenCheckpoint> work_;
};

}  // namespace tessera
