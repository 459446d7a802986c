// ProgramCache: shares a model's programs between handles with equal settings,
// which then plan once. A program lives while a handle runs it. Any thread.
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
  // Returns a program in use, or the result of `make`. `purpose` completes
  // the settings that options leave to the model. Settings that may change
  // between calls (plan files, measured plans, tuning) are never shared.
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
