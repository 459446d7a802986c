// A trainer whose devices are in several processes (Session::lead, engine/base/agreement.h).
#include <map>
#include <string>

#include "engine/base/agreement.h"
#include "engine/training/trainer.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"

namespace tessera {

// Devices are each process' own.
Status Trainer::check_same_training(const DeviceSet& devices, const Options& options, const Graph& forward, const Dataset* dataset) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : options)
    if (key != "devices") values["option '" + key + "'"] = to_text(value);
  values["the model's graph"] = format("{}", forward.fingerprint());
  if (dataset != nullptr) values["the data's fingerprint"] = to_text(dataset->fingerprint());
  return agree_on_values(devices.channel(), values);
}

Status Trainer::lead_status(const std::function<Status()>& work) {
  return lead([&]() -> Result<std::string> {
           TSR_RETURN_IF_ERROR(work());
           return std::string();
         })
      .status();
}

Result<bool> Trainer::agree(bool value) {
  TSR_ASSIGN_OR_RETURN(const std::string text, lead([&]() -> Result<std::string> { return std::string(value ? "1" : "0"); }));
  return text == "1";
}

// Losses are equal in all processes, and so are errors of their values.
void Trainer::end_world(const Status& why) {
  if (why.code() != kNotFinite) running_->session().end_world(why);
}

Result<StepInfo> Trainer::step() {
  Result<StepInfo> made = make_step();
  if (!made.ok()) end_world(made.status());
  return made;
}

Result<Evaluation> Trainer::evaluate() {
  Result<Evaluation> made = make_evaluation();
  if (!made.ok()) end_world(made.status());
  return made;
}

}  // namespace tessera
