#include "engine/program/program_runner.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/ordered_tasks.h"
#include "engine/model/stored_values.h"
#include "engine/model/weight_pool.h"
#include "engine/program/report.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

size_t threads_of(Runtime& runtime) {
  const tsr_host_api& host = runtime.registry().host();
  return static_cast<size_t>(std::max(1, host.thread_count(host.host)));
}

}  // namespace

Result<HostTensor> scalar_tensor(const TensorType& type, double value) {
  const auto make = [&type](auto typed) {
    return HostTensor::copy_of<decltype(typed)>(type, std::array<decltype(typed), 1>{typed});
  };
  if (type.shape.rank() != 0)
    return Status(StatusCode::kInvalidArgument, format("wanted a scalar input, found {}", to_text(type)));
  if (type.dtype == DType::kF32) return make(static_cast<float>(value));
  if (type.dtype == DType::kF64) return make(value);
  if (type.dtype == DType::kI32) return make(static_cast<int32_t>(value));
  if (type.dtype == DType::kI64) return make(static_cast<int64_t>(value));
  return Status(StatusCode::kUnsupported, format("a scalar input of type {} cannot be fed", to_text(type)));
}

double scalar_value(const HostTensor& tensor) {
  TSR_CHECK(tensor.type.shape.is_concrete() && tensor.type.shape.elements() == 1, "wanted one element");
  if (tensor.type.dtype == DType::kF64) return tensor.as<double>()[0];
  TSR_CHECK(tensor.type.dtype == DType::kF32, "wanted f32 or f64");
  return tensor.as<float>()[0];
}

Result<std::shared_ptr<const LoadedProgram>> prepare(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<DeviceSet> devices,
                                                     CompiledProgram compiled) {
  auto prepared = std::make_shared<LoadedProgram>();
  if (devices->text().starts_with("null"))
    runtime->log().add(
        2, format("devices '{}' compute nothing: every result on them is noise; they are for plans and tests",
                  devices->text()));
  prepared->runtime = std::move(runtime);
  prepared->devices = std::move(devices);
  prepared->record = std::move(compiled.record);
  TSR_ASSIGN_OR_RETURN(prepared->executable,
                       Executable::prepare(prepared->devices, std::move(compiled.program)));
  return std::shared_ptr<const LoadedProgram>(std::move(prepared));
}

Result<std::unique_ptr<ProgramRunner>> ProgramRunner::create(std::shared_ptr<const LoadedProgram> prepared,
                                                             SessionOptions options) {
  TSR_RETURN_IF_ERROR(prepared->runtime->check_process());
  std::unique_ptr<ProgramRunner> running(new ProgramRunner);
  running->prepared_ = std::move(prepared);
  TSR_ASSIGN_OR_RETURN(running->session_, Session::create(running->prepared_->executable, options));
  running->note_types();
  return running;
}

Result<std::unique_ptr<ProgramRunner>> ProgramRunner::create_on(std::shared_ptr<const LoadedProgram> prepared,
                                                                SessionOptions options) {
  const std::shared_ptr<const SharedWeights> weights = options.weights;
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<ProgramRunner> running,
                       create(std::move(prepared), std::move(options)));
  running->weights_ = weights;
  return running;
}

Result<std::unique_ptr<ProgramRunner>> ProgramRunner::create(std::shared_ptr<const LoadedProgram> prepared,
                                                             SessionOptions options,
                                                             const std::shared_ptr<SharedModel>& model,
                                                             uint64_t seed) {
  TSR_RETURN_IF_ERROR(prepared->runtime->check_process());
  const size_t at_once = threads_of(*prepared->runtime);
  TSR_ASSIGN_OR_RETURN(options.weights,
                       model->weights().take(model, prepared->devices, *prepared->executable, seed, at_once));
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<ProgramRunner> running,
                       create_on(std::move(prepared), std::move(options)));
  TSR_RETURN_IF_ERROR(running->write_parameters(*model, seed));
  return running;
}

// Drawing and rounding random values takes about 12 ns an element:
// all kernel threads compute the next parameters while one is copied.
Status ProgramRunner::write_parameters(const SharedModel& model, uint64_t seed) {
  const StoredValues values(model, program(), seed);
  std::vector<std::string> names;
  for (const auto& [name, type] : values.types())
    if (!session_->is_shared(name)) names.push_back(name);
  const auto make = [&](size_t at) { return values.make(names[at]); };
  const auto use = [&](size_t at, const HostTensor& stored) -> Status {
    TSR_RETURN_IF_ERROR(session_->write(names[at], stored));
    model.drop_pages(stored);
    return {};
  };
  return run_ordered_tasks<HostTensor>(names.size(), threads_of(*prepared_->runtime), make, use);
}

size_t ProgramRunner::threads() const { return threads_of(*prepared_->runtime); }

Status ProgramRunner::begin_lead() {
  TSR_RETURN_IF_ERROR(session_->begin_lead());
  note_types();
  return {};
}

void ProgramRunner::note_types() {
  const auto types = [&](SlotKind kind) {
    const std::map<std::string, TensorType> found = session_->types(kind);  // sorted, so checkpoints list tensors in one order
    return std::vector<std::pair<std::string, TensorType>>(found.begin(), found.end());
  };
  parameters_ = types(SlotKind::kParameter);
  states_ = types(SlotKind::kState);
}

Status ProgramRunner::feed(std::string_view entry, std::string_view name, const HostTensor& value) {
  return session_->feed(entry, name, value);
}

Status ProgramRunner::feed_scalar(std::string_view entry, std::string_view name, double value) {
  const TensorType* type = find_input(entry, name);
  if (!type) return {};
  Result<HostTensor> scalar = scalar_tensor(*type, value);
  if (!scalar.ok()) return scalar.status().with_context(format("input '{}'", name));
  return session_->feed(entry, name, *scalar);
}

Status ProgramRunner::run(std::string_view entry) {
  TSR_RETURN_IF_ERROR(prepared_->runtime->check_process());
  if (failed())
    return Status(
        kValuesLost,
        "an earlier run failed or was cancelled and the values on the devices are lost: resume from a "
        "checkpoint, or make this object again");
  if (weights_ && weights_->unchanged) TSR_RETURN_IF_ERROR(weights_->unchanged());
  {
    const std::lock_guard lock(cancel_mutex_);
    running_ = true;
  }
  const Status status = session_->run(entry);
  {
    const std::lock_guard lock(cancel_mutex_);
    running_ = false;
  }
  return status;
}

Result<double> ProgramRunner::fetch_scalar(std::string_view entry, std::string_view name) {
  TSR_ASSIGN_OR_RETURN(const HostTensor value, session_->fetch(entry, name));
  return scalar_value(value);
}

std::string ProgramRunner::trace_json() {
  std::vector<std::string> devices;
  for (int32_t rank = 0; rank < prepared_->devices->size(); ++rank)
    devices.push_back(prepared_->devices->device_name(rank));
  return tessera::trace_json(session_->take_trace(), devices);
}

void ProgramRunner::cancel() {
  const std::lock_guard lock(cancel_mutex_);
  if (running_) session_->cancel();
}

}  // namespace tessera
