// Programs of readers of texts (scorers, embedders), which readers of one model with equal options share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"
#include "engine/program/compile.h"
#include "engine/program/program_runner.h"

namespace tessera {

struct KeptProgram {
  std::string purpose;     // settings that the options leave to the model
  const Options& options;  // the reader's
  const ComputeSettings& compute;
  const InferenceSettings& inference;
  bool measure_memory = false;
  std::function<Result<CompiledProgram>(const Graph& forward)> compile;  // unless the model keeps it already
};

// A session of the reader's own on the shared program.
Result<std::unique_ptr<ProgramRunner>> run_kept_program(const std::shared_ptr<Runtime>& runtime,
                                                        const std::shared_ptr<SharedModel>& model,
                                                        const std::shared_ptr<DeviceSet>& devices,
                                                        const KeptProgram& program);

}  // namespace tessera
