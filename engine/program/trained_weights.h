// TrainedWeights: a trainer's parameters, read in place by engines and
// generators, with the trainer's placement. Keeps the trainer alive. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"
#include "engine/model/weight_lock.h"
#include "engine/program/compile.h"
#include "engine/program/program_runner.h"
#include "engine/settings/trainer_settings.h"
#include "graph/host_tensor.h"

namespace tessera {

// WeightOwner: the trainer's interface to readers of its weights.
class WeightOwner {
 public:
  virtual ~WeightOwner() = default;
  virtual const std::shared_ptr<Runtime>& runtime() const = 0;
  virtual const std::shared_ptr<SharedModel>& model() const = 0;
  virtual const Graph& forward_graph() const = 0;  // the untransformed model
  virtual const TrainerSettings& settings() const = 0;
  virtual ProgramRunner& runner() const = 0;
  virtual WeightLock& weight_lock() const = 0;
  virtual Status usable() const = 0;        // also fails in a forked child
  virtual Status check_values() const = 0;  // kValuesLost if the values on the devices are lost
  virtual uint64_t parameter_seed() const = 0;                   // of parameters without a value in the model
  virtual bool is_frozen(std::string_view parameter) const = 0;  // no step changes it
  // Whether the caller, or a checkpoint, has put another value in place of a frozen parameter's.
  virtual bool is_replaced(std::string_view parameter) const = 0;
  // A parameter's value on the devices, in the type that the model stores. One thread at a time.
  virtual Result<HostTensor> present_value(std::string_view parameter) = 0;
  // Lets other programs read the weights in place while the result lives.
  virtual std::shared_ptr<const void> lend() const = 0;
};

// The device settings of a program that reads a trainer's weights and shares `memory_limit` (0: the trainer's limit) with it:
// settings, plan and program are the trainer's. kOutOfMemory if nothing is left.
Result<ComputeSettings> compute_beside_trainer(const TrainerSettings& settings, const PlanRecord& record,
                                               const Program& program, int64_t memory_limit);

class TrainedWeights {
 public:
  // kUnsupported for a trainer with fp8 matmuls.
  static Result<std::shared_ptr<const TrainedWeights>> of(std::shared_ptr<WeightOwner> trainer);

  // kInvalidArgument for options fixed by the trainer: devices, plan, precision, weights.
  static Status check_options(const Options& options, std::string_view consumer);
  // The trainer's device settings for a program that shares `memory_limit`
  // (0: the trainer's limit) with it. kOutOfMemory if nothing is left.
  Result<ComputeSettings> compute_settings(int64_t memory_limit) const;

  const std::shared_ptr<SharedModel>& model() const { return trainer_->model(); }
  const Graph& forward() const { return trainer_->forward_graph(); }
  const std::shared_ptr<Runtime>& runtime() const { return trainer_->runtime(); }
  const std::shared_ptr<DeviceSet>& devices() const { return trainer_->runner().prepared()->devices; }
  TrainedPlan plan() const { return {trainer_->settings(), trainer_->runner().record().entries}; }

  // Loads a program that follows `plan`, on the trainer's parameters. kUnsupported if it needs another placement.
  Result<std::unique_ptr<ProgramRunner>> load(CompiledProgram compiled, SessionOptions options) const;

  // Locks out updates while the result lives. kValuesLost if the values
  // are lost, or are newer than `known` and no longer where `runner` reads them.
  Result<WeightLock::Reading> read(const ProgramRunner& runner, int64_t known) const;

 private:
  explicit TrainedWeights(std::shared_ptr<WeightOwner> trainer)
      : trainer_(std::move(trainer)), lent_(trainer_->lend()) {}
  const std::shared_ptr<WeightOwner> trainer_;
  const std::shared_ptr<const void> lent_;
};

}  // namespace tessera
