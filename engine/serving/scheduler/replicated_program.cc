#include "engine/serving/scheduler/replicated_program.h"

#include <utility>

#include "graph/base/text.h"

namespace tessera {

Result<std::shared_ptr<const LoadedProgram>> replicate_program(const LoadedProgram& program,
                                                               std::shared_ptr<DeviceSet> devices) {
  auto record = std::make_shared<PlanRecord>(*program.record);
  if (devices->size() != std::ssize(record->devices))
    return Status(StatusCode::kInvalidArgument,
                  format("the plan is for {} devices, '{}' has {}", record->devices.size(), devices->text(),
                         devices->size()));
  for (int32_t rank = 0; rank < devices->size(); ++rank)
    record->devices[static_cast<size_t>(rank)].name = devices->device_name(rank);
  record->devices_text = devices->text();
  return prepare(program.runtime, std::move(devices), {std::move(record), program.executable->program()});
}

}  // namespace tessera
