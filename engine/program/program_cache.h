// ProgramCache: a model's programs, so that handles with the same settings plan once and hold one between them.
// A program stays as long as a handle runs it. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "engine/program/program_runner.h"

namespace tessera {

class ProgramCache {
 public:
  // The program that an earlier handle runs, or what `make` yields. `purpose` tells what the options leave to
  // the model. Settings whose meaning may change from one call to the next (files of plans, measured plans,
  // tuning) are always made.
  using Make = std::function<Result<std::shared_ptr<const LoadedProgram>>()>;
  Result<std::shared_ptr<const LoadedProgram>> find_or_make(std::string_view purpose, const Graph& forward,
                                                            const Options& options,
                                                            const ComputeSettings& compute,
                                                            const Runtime& runtime, const DeviceSet& devices,
                                                            const Make& make);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const LoadedProgram>> programs_;
};

}  // namespace tessera
