// TrainedWeights: a trainer's parameters as engines and generators read them: in the trainer's memory, as its plan has
// placed them, without a copy. They keep the trainer. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"
#include "engine/model/weight_lock.h"
#include "engine/program/compile.h"
#include "engine/program/program_runner.h"
#include "engine/settings/trainer_settings.h"

namespace tessera {

// WeightOwner: a trainer, as its weights' readers know it.
class WeightOwner {
 public:
  virtual ~WeightOwner() = default;
  virtual const std::shared_ptr<Runtime>& runtime() const = 0;
  virtual const std::shared_ptr<SharedModel>& model() const = 0;
  virtual const Graph& forward_graph() const = 0;  // of the model, as it was
  virtual const TrainerSettings& settings() const = 0;
  virtual ProgramRunner& runner() const = 0;
  virtual WeightLock& weight_lock() const = 0;
  virtual Status usable() const = 0;        // also whether this is the process that made it
  virtual Status check_values() const = 0;  // kValuesLost where those on the devices are
  // While the result lives, other programs read the weights where they are.
  virtual std::shared_ptr<const void> lend() const = 0;
};

class TrainedWeights {
 public:
  // Fails with kUnsupported where the trainer computes products in fp8.
  static Result<std::shared_ptr<const TrainedWeights>> of(std::shared_ptr<WeightOwner> trainer);

  // kInvalidArgument for options that the trainer has settled: devices, plan, precision, weights.
  static Status check_options(const Options& options, std::string_view consumer);
  // The trainer's settings of devices, for a program that shares `memory_limit` of a device with the trainer (0: the
  // trainer's own limit). kOutOfMemory where nothing is left.
  Result<ComputeSettings> compute_settings(int64_t memory_limit) const;

  const std::shared_ptr<SharedModel>& model() const { return trainer_->model(); }
  const Graph& forward() const { return trainer_->forward_graph(); }
  const std::shared_ptr<Runtime>& runtime() const { return trainer_->runtime(); }
  const std::shared_ptr<DeviceSet>& devices() const { return trainer_->runner().prepared()->devices; }
  TrainedPlan plan() const { return {trainer_->settings(), trainer_->runner().record().entries}; }

  // A program along `plan`, on the trainer's parameters. kUnsupported where it would need them placed otherwise.
  Result<std::unique_ptr<ProgramRunner>> load(CompiledProgram compiled, SessionOptions options) const;

  // A lock against updates of the trainer while the result lives. kValuesLost where the values are, or
  // have a version other than `known` and are no longer where `runner` reads them.
  Result<WeightLock::Reading> read(const ProgramRunner& runner, int64_t known) const;

 private:
  explicit TrainedWeights(std::shared_ptr<WeightOwner> trainer)
      : trainer_(std::move(trainer)), lent_(trainer_->lend()) {}
  const std::shared_ptr<WeightOwner> trainer_;
  const std::shared_ptr<const void> lent_;
};

}  // namespace tessera
