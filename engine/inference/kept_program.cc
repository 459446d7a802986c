#include "engine/inference/kept_program.h"

#include <utility>

#include "engine/program/program_cache.h"
#include "runtime/arranged_weights.h"

namespace tessera {

Result<std::unique_ptr<ProgramRunner>> run_kept_program(const std::shared_ptr<Runtime>& runtime,
                                                        const std::shared_ptr<SharedModel>& model,
                                                        const std::shared_ptr<DeviceSet>& devices,
                                                        const KeptProgram& program) {
  const Graph forward = model->graph();
  const auto make = [&]() -> Result<std::shared_ptr<const LoadedProgram>> {
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, program.compile(forward));
    if (program.inference.repack) take_arranged_variants(compiled.program, *devices);
    return prepare(runtime, devices, std::move(compiled));
  };
  TSR_ASSIGN_OR_RETURN(auto prepared,
                       model->kept<ProgramCache>().find_or_make(program.purpose, forward, program.options,
                                                                program.compute, *runtime, *devices, make));
  const SessionOptions session{.measure_memory = program.measure_memory, .side = CoreSide::kInference};
  return ProgramRunner::create(std::move(prepared), session, model, model->seed());
}

}  // namespace tessera
