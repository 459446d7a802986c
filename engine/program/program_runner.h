// ProgramRunner: a compiled Program in device memory, with a model's parameters;
// the base of trainers and generators. One thread at a time, except `cancel`.
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

// LoadedProgram: a Program on opened devices, shared by its sessions; its memory is not allocated yet.
struct LoadedProgram {
  std::shared_ptr<Runtime> runtime;  // first: must outlive the devices
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
  // Creates a runner on options.weights, which has all parameters.
  static Result<std::unique_ptr<ProgramRunner>> create_on(std::shared_ptr<const LoadedProgram> prepared,
                                                          SessionOptions options);
  // Creates a runner with the model's parameters; read-only ones are shared between sessions of the model.
  static Result<std::unique_ptr<ProgramRunner>> create(std::shared_ptr<const LoadedProgram> prepared,
                                                       SessionOptions options,
                                                       const std::shared_ptr<SharedModel>& model,
                                                       uint64_t seed);

  // Writes every parameter that is not shared, in the program's
  // storage type: the model's value, or one drawn from `seed`.
  Status write_parameters(const SharedModel& model, uint64_t seed);

  // Feeds the scalar input `name` of `entry`, converted
  // to its type; no effect without that input.
  Status feed_scalar(std::string_view entry, std::string_view name, double value);
  Status feed(std::string_view entry, std::string_view name, const HostTensor& value);
  bool has_input(std::string_view entry, std::string_view name) const {
    return find_input(entry, name) != nullptr;
  }
  const TensorType* find_input(std::string_view entry, std::string_view name) const { return session_->find_input(entry, name); }
  bool has_entry(std::string_view entry) const { return session_->has_entry(entry); }
  std::vector<std::string> input_names(std::string_view entry) const { return session_->input_names(entry); }

  // After a failed run all calls except `restore` are refused.
  Status run(std::string_view entry);
  bool failed() const { return session_->failed(); }
  Status restore() { return session_->restore(); }
  Result<double> fetch_scalar(std::string_view entry, std::string_view name);

  // Stops a run in progress, if any; any thread.
  void cancel();

  // With devices of several processes: from here on the first one uses the program for all (Session::begin_lead). Collective.
  Status begin_lead();

  // Global types of parameters and states by name: over the ranks of this process, of a program that is led over all.
  const std::vector<std::pair<std::string, TensorType>>& parameters() const { return parameters_; }
  const std::vector<std::pair<std::string, TensorType>>& states() const { return states_; }

  size_t threads() const;  // number of kernel threads
  Session& session() { return *session_; }
  std::string trace_json();  // events since the last call
  const PlanRecord& record() const { return *prepared_->record; }
  const std::shared_ptr<const SharedWeights>& weights() const { return weights_; }  // null: all parameters are its own
  const std::shared_ptr<const LoadedProgram>& prepared() const { return prepared_; }

 private:
  ProgramRunner() = default;
  const Program& program() const { return prepared_->executable->program(); }

  std::shared_ptr<const LoadedProgram> prepared_;
  std::shared_ptr<const SharedWeights> weights_;  // null without shared parameters
  void note_types();

  std::unique_ptr<Session> session_;
  std::vector<std::pair<std::string, TensorType>> parameters_, states_;
  std::mutex cancel_mutex_;
  bool running_ = false;
};

// A scalar of the given type.
Result<HostTensor> scalar_tensor(const TensorType& type, double value);
double scalar_value(const HostTensor& tensor);

}  // namespace tessera
