#include "runtime/backends/cuda/kernels/dnn_plan.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::cuda {

namespace {

Status set_device(DnnDescriptor& descriptor, const DnnDevice& device, cudnnBackendAttributeName_t name) {
  return device.properties == nullptr ? Status() : descriptor.set(name, *device.properties);
}

bool is_deterministic(const DnnDescriptor& engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, std::size(notes), notes);
  return std::find(notes, notes + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes + count;
}

}  // namespace

std::string DnnEngine::text() const {
  std::string settings;
  for (const auto& [knob, value] : knobs)
    settings += format("{}{}={}", settings.empty() ? "" : ", ", static_cast<int32_t>(knob), value);
  return format("engine {} ({})", index, settings);
}

DnnPlan::DnnPlan(const DnnDevice& device, DnnGraph graph)
    : device_(device), graph_(std::move(graph)), configuration_(graph_.dnn()), plan_(graph_.dnn()) {}

// Reads the engine's number and settings, and the size of its workspace.
Status DnnPlan::read_configuration() {
  DnnDescriptor engine(graph_.dnn());
  TSR_RETURN_IF_ERROR(engine.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  cudnnBackendDescriptor_t raw = engine.raw();
  engine_ = {};
  if (configuration_.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw) != 1 ||
      engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine_.index) != 1 ||
      configuration_.get(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_bytes_) != 1)
    return Status(StatusCode::kUnsupported, "an engine of cuDNN does not say what it is");
  if (!is_deterministic(engine))
    return Status(StatusCode::kUnsupported, format("{} is not deterministic", engine_.text()));
  std::vector<DnnDescriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    choices.emplace_back(graph_.dnn());
    TSR_RETURN_IF_ERROR(choices.back().create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raws.push_back(choices.back().raw());
  }
  const int64_t count = configuration_.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                           static_cast<int64_t>(raws.size()), raws.data());
  for (int64_t i = 0; i < count; ++i) {
    const DnnDescriptor& choice = choices[static_cast<size_t>(i)];
    std::pair<cudnnBackendKnobType_t, int64_t> knob{};
    if (choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob.first) == 1 &&
        choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.second) == 1)
      engine_.knobs.push_back(knob);
  }
  return {};
}

Result<DnnPlan> DnnPlan::propose(const DnnDevice& device, DnnGraph graph) {
  DnnPlan made(device, std::move(graph));
  TSR_ASSIGN_OR_RETURN(const DnnDescriptor* const operations, made.graph_.finish(device.handle));
  DnnDescriptor heuristic(made.graph_.dnn());
  TSR_RETURN_IF_ERROR(heuristic.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *operations));
  TSR_RETURN_IF_ERROR(heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A));
  TSR_RETURN_IF_ERROR(set_device(heuristic, device, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
  TSR_RETURN_IF_ERROR(heuristic.finalize("ask the heuristic"));
  // The library, asked without room, says how many it has; not all of them need be supported.
  const int64_t most =
      heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<DnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int64_t i = 0; i < most; ++i) {
    found.emplace_back(made.graph_.dnn());
    TSR_RETURN_IF_ERROR(found.back().create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raws.push_back(found.back().raw());
  }
  const int64_t count = most == 0 ? 0
                                  : heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raws.data());
  Status refusal(StatusCode::kUnsupported, "cuDNN has no engine for this graph on this device");
  for (int64_t i = 0; i < count; ++i) {
    made.configuration_ = std::move(found[static_cast<size_t>(i)]);
    const Status read = made.read_configuration();
    if (read.ok()) return made;
    refusal = read;
  }
  return refusal;
}

Result<DnnPlan> DnnPlan::with_engine(const DnnDevice& device, DnnGraph graph, const DnnEngine& wanted) {
  DnnPlan made(device, std::move(graph));
  const Dnn& dnn = made.graph_.dnn();
  TSR_ASSIGN_OR_RETURN(const DnnDescriptor* const operations, made.graph_.finish(device.handle));
  const auto add = [&](cudnnBackendDescriptorType_t type) -> Result<DnnDescriptor*> {
    made.choices_.emplace_back(dnn);
    TSR_RETURN_IF_ERROR(made.choices_.back().create(type));
    return &made.choices_.back();
  };
  made.choices_.reserve(wanted.knobs.size() + 1);
  TSR_ASSIGN_OR_RETURN(DnnDescriptor* const engine, add(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(engine->set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, *operations));
  TSR_RETURN_IF_ERROR(engine->set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, wanted.index));
  TSR_RETURN_IF_ERROR(set_device(*engine, device, CUDNN_ATTR_ENGINE_DEVICEPROP));
  TSR_RETURN_IF_ERROR(engine->finalize("take an engine"));
  std::vector<cudnnBackendDescriptor_t> raws;
  for (const auto& [knob, value] : wanted.knobs) {
    TSR_ASSIGN_OR_RETURN(DnnDescriptor* const choice, add(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    TSR_RETURN_IF_ERROR(choice->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, knob));
    TSR_RETURN_IF_ERROR(choice->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value));
    TSR_RETURN_IF_ERROR(choice->finalize("choose a setting"));
    raws.push_back(choice->raw());
  }
  TSR_RETURN_IF_ERROR(made.configuration_.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(made.configuration_.set(CUDNN_ATTR_ENGINECFG_ENGINE, *engine));
  if (!raws.empty())
    TSR_RETURN_IF_ERROR(made.configuration_.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                static_cast<int64_t>(raws.size()), raws.data()));
  TSR_RETURN_IF_ERROR(made.configuration_.finalize("take an engine with these settings"));
  TSR_RETURN_IF_ERROR(made.read_configuration());
  return made;
}

Status DnnPlan::compile() {
  if (plan_.raw() != nullptr) return {};
  DnnDescriptor plan(graph_.dnn());
  TSR_RETURN_IF_ERROR(plan.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration_));
  if (device_.handle != nullptr)
    TSR_RETURN_IF_ERROR(plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device_.handle));
  TSR_RETURN_IF_ERROR(set_device(plan, device_, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
  TSR_RETURN_IF_ERROR(plan.finalize("compile a plan"));
  int64_t bytes = 0;
  if (plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 ||
      bytes > workspace_bytes_)
    return Status(StatusCode::kUnsupported,
                  format("a plan of {} bytes of workspace, its engine promised {}", bytes, workspace_bytes_));
  plan_ = std::move(plan);
  return {};
}

Status DnnPlan::execute(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> addresses;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.id);
    addresses.push_back(binding.address);
  }
  DnnDescriptor pack(graph_.dnn());
  TSR_RETURN_IF_ERROR(pack.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  TSR_RETURN_IF_ERROR(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids));
  TSR_RETURN_IF_ERROR(pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                               static_cast<int64_t>(addresses.size()), addresses.data()));
  TSR_RETURN_IF_ERROR(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  TSR_RETURN_IF_ERROR(pack.finalize("bind operands"));
  return graph_.dnn().status(graph_.dnn().execute(handle, plan_.raw(), pack.raw()), "run a plan");
}

}  // namespace tessera::cuda
