#include "engine/settings/generator_settings.h"

#include <algorithm>

namespace tessera {

Result<GeneratorSettings> read_generator_settings(const Options& options) {
  OptionReader reader(options, "generator");
  GeneratorSettings settings;
  settings.compute = read_compute(reader);
  settings.context = reader.i64("context", 0, kWholeContext, 1 << 24);
  settings.compute.trace = reader.flag("trace", false);
  settings.inference = read_inference(reader, "generator");
  settings.text = read_text(reader, settings.text);
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Status finalize_context(GeneratorSettings& settings, int64_t longest) {
  settings.longest = longest;
  if (settings.context == kWholeContext)
    settings.context = longest > 0 ? std::min(longest, kMostWholeContext) : 0;
  TSR_ASSIGN_OR_RETURN(settings.context,
                       tokens_at_once(settings.context, longest, "generator: option 'context'"));
  return {};
}

}  // namespace tessera
