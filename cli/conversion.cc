#include "conversion.h"

#include "steps.h"

namespace cli {

Json convert(const Common& common, const std::string& doing, const std::string& input,
             const std::string& output, const Options& options) {
  const Work work = make<Work>(tsr_conversion_begin, static_cast<tsr_runtime*>(nullptr), input.c_str(),
                               output.c_str(), static_cast<const tsr_options*>(options.get()));
  const Interruptible interruptible;  // to the end: a killed process leaves a part of a file
  Progress progress(common);
  run_steps(work, doing + " " + input, interruptible, progress);
  Json report = Json::parse(text(tsr_conversion_finish, work.get()));
  if (report.contains("notes"))
    for (const Json& note : report["notes"]) progress.say("note: " + note.get<std::string>());
  return report;
}

}  // namespace cli
