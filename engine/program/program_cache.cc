#include "engine/program/program_cache.h"

#include <algorithm>

#include "engine/program/entry_plans.h"
#include "engine/sampling/text_settings.h"
#include "graph/base/text.h"

namespace tessera {

Result<std::shared_ptr<const LoadedProgram>> ProgramCache::find_or_make(
    std::string_view purpose, const Graph& forward, const Options& options, const ComputeSettings& compute,
    const Runtime& runtime, const DeviceSet& devices, const Make& make) {
  if (compute.has_given_plan() || compute.measure > 0 || compute.tune) return make();
  // Options of single texts do not affect the program.
  const std::vector<std::string>& of_texts = text_option_names();
  std::string key = format("{} {} {}", purpose, forward.fingerprint(), profile_of(devices));
  for (const auto& [name, value] : options)
    if (std::ranges::find(of_texts, name) == of_texts.end()) key += format("\n{}={}", name, to_text(value));
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = programs_.find(key); found != programs_.end())
      if (std::shared_ptr<const LoadedProgram> program = found->second.lock();
          program && program->runtime.get() == &runtime)
        return program;
  }
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedProgram> made, make());
  const std::lock_guard lock(mutex_);
  std::erase_if(programs_, [](const auto& it) { return it.second.expired(); });
  programs_.insert_or_assign(std::move(key), made);
  return made;
}

}  // namespace tessera
