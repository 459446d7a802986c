#include "conversion.h"

#include "steps.h"

namespace cli {

Json convert(const Common& common, const std::string& doing, const std::string& input,
             const std::string& output, const Options& options) {
  const Conversion conversion =
      make<Conversion>(tsr_conversion_new, static_cast<tsr_runtime*>(nullptr), input.c_str(), output.c_str(),
                       static_cast<const tsr_options*>(options.get()));
  const Interruptible interruptible;  // to the end: a killed process leaves a part of a file
  Progress progress(common);
  run_steps(conversion, tsr_conversion_step, doing + " " + input, interruptible, progress);
  Json report = Json::parse(text(tsr_conversion_finish, conversion.get()));
  if (report.contains("notes"))
    for (const Json& note : report["notes"]) progress.say("note: " + note.get<std::string>());
  return report;
}

}  // namespace cli
