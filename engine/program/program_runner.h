// ProgramRunner: the common base of Trainer and Generator: a compiled Program in memory on opened devices, filled
// with a model's parameters. One thread at a time, except for `cancel`.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"
#include "engine/program/compile.h"
#include "runtime/session.h"
#include "runtime/shared_weights.h"

namespace tessera {

// A Program loaded on opened devices; shared by the sessions that run it. Nothing large is allocated yet.
struct LoadedProgram {
  std::shared_ptr<Runtime> runtime;  // first: outlives the devices
  std::shared_ptr<DeviceSet> devices;
  std::shared_ptr<const PlanRecord> record;
  std::shared_ptr<Executable> executable;
};
Result<std::shared_ptr<const LoadedProgram>> prepare(std::shared_ptr<Runtime> runtime,
                                                std::shared_ptr<DeviceSet> devices, CompiledProgram compiled);

class ProgramRunner {
 public:
  static Result<std::unique_ptr<ProgramRunner>> create(std::shared_ptr<const LoadedProgram> prepared,
                                                 SessionOptions options);
  // A runner on the parameters of options.weights, which has all of them.
  static Result<std::unique_ptr<ProgramRunner>> create_on(std::shared_ptr<const LoadedProgram> prepared,
                                                          SessionOptions options);
  // With the model's parameters; what the program only reads is shared with other sessions over the model.
  static Result<std::unique_ptr<ProgramRunner>> create(std::shared_ptr<const LoadedProgram> prepared,
                                                       SessionOptions options,
                                                       const std::shared_ptr<SharedModel>& model,
                                                       uint64_t seed);

  // Writes every parameter that is not shared, stored as the program has it: the model's value, or one drawn
  // from `seed`.
  Status write_parameters(const SharedModel& model, uint64_t seed);

  // Feeds a number to the scalar input `name` of `entry` in the input's own type; no effect without that
  // input.
  Status feed_scalar(std::string_view entry, std::string_view name, double value);
  Status feed(std::string_view entry, std::string_view name, const HostTensor& value);
  bool has_input(std::string_view entry, std::string_view name) const {
    return find_input(entry, name) != nullptr;
  }
  const TensorType* find_input(std::string_view entry, std::string_view name) const;
  bool has_entry(std::string_view entry) const;
  std::vector<std::string> input_names(std::string_view entry) const;

  // After a failed run every call except `restore` is refused.
  Status run(std::string_view entry);
  bool failed() const { return session_->failed(); }
  Status restore() { return session_->restore(); }
  Result<double> fetch_scalar(std::string_view entry, std::string_view name);

  // Stops a run in progress, if any; any thread.
  void cancel();

  // Global types of parameters and states over all ranks, by name.
  const std::vector<std::pair<std::string, TensorType>>& parameters() const { return parameters_; }
  const std::vector<std::pair<std::string, TensorType>>& states() const { return states_; }

  size_t threads() const;  // as many as kernels may use
  Session& session() { return *session_; }
  std::string trace_json();  // what ran since the last call
  const PlanRecord& record() const { return *prepared_->record; }
  const std::shared_ptr<const SharedWeights>& weights() const { return weights_; }  // null: all are its own
  const std::shared_ptr<const LoadedProgram>& prepared() const { return prepared_; }

 private:
  ProgramRunner() = default;
  const Program& program() const { return prepared_->executable->program(); }

  std::shared_ptr<const LoadedProgram> prepared_;
  std::shared_ptr<const SharedWeights> weights_;  // null without
  std::unique_ptr<Session> session_;
  std::vector<std::pair<std::string, TensorType>> parameters_, states_;
  std::mutex cancel_mutex_;
  bool running_ = false;
};

// A scalar of the given type.
Result<HostTensor> scalar_tensor(const TensorType& type, double value);
double scalar_value(const HostTensor& tensor);

}  // namespace tessera
