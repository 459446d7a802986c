#include "run_recorder.h"

#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "plan_text.h"

namespace cli {

namespace {

using RunLog = Handle<tsr_run_log, tsr_run_log_free>;

// Options as they were given, except names of files, which are recorded elsewhere.
Json given_options(const CLI::App& command) {
  Json given = Json::object();
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (name == "data" || name == "metrics" || name == "tensorboard" || name == "report" || name == "devices")
      continue;
    std::string text;
    for (const std::string& result : option->results()) text += (text.empty() ? "" : " ") + result;
    given[name] = text;
  }
  return given;
}

RunLog open_log(const CLI::App& command, const RunFiles& files, const Trainer& trainer, int64_t steps,
                const std::string& model, const std::string& data) {
  const Options options = make<Options>(tsr_options_new);
  for (const auto& [key, value] :
       {std::pair("metrics", files.metrics), std::pair("tensorboard", files.tensorboard),
        std::pair("report", files.report), std::pair("model", model), std::pair("data", data)})
    if (!value.empty()) set(options, key, value);
  set(options, "steps", steps);
  set(options, "settings", given_options(command).dump(-1, ' ', false, Json::error_handler_t::replace));
  return make<RunLog>(tsr_run_log_new, trainer.get(), static_cast<const tsr_options*>(options.get()));
}

// "12 s", "1 min 20 s", "3 h 05 min".
std::string duration_text(double seconds) {
  char text[48];
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60)
    std::snprintf(text, sizeof text, "%lld s", whole);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  return text;
}

}  // namespace

void add_run_files(CLI::App& command, RunFiles& files) {
  command.add_option(
      "--metrics", files.metrics,
      "file of JSON lines: a header, then loss, rate, gradient norm, seconds and tokens of every step, "
      "evaluations, checkpoints; --resume goes on in it");
  command.add_option("--tensorboard", files.tensorboard,
                     "folder for a file of events that TensorBoard reads");
  command.add_option(
      "--report", files.report,
      "HTML page of the run, rewritten every ten seconds: curves, memory predicted and measured, plan, "
      "physical limit, settings");
}

RunRecorder::RunRecorder(const CLI::App& command, const RunFiles& files, const Trainer& trainer,
                         int64_t steps, const std::string& model, const std::string& data)
    : log_(open_log(command, files, trainer, steps, model, data)) {}

void RunRecorder::warn(tsr_status* status) const {
  try {
    check(status);
    is_warned_ = false;
  } catch (const Error& error) {
    if (error.code() != TSR_IO) throw;
    if (!std::exchange(is_warned_, true))
      std::cerr << "warning: the run's log was not written: " << error.what()
                << "; the training goes on, and what is missing is written when that works again\n";
  }
}

void RunRecorder::add_step() const { warn(tsr_run_log_step(log_.get())); }

void RunRecorder::add_values(const std::string& prefix, const Json& values) const {
  for (const auto& [name, value] : values.items())
    warn(tsr_run_log_value(log_.get(), (prefix + name).c_str(), value.get<double>()));
}

void RunRecorder::add_evaluation(const Json& evaluation) const {
  const auto number = [&](const char* key) {
    return evaluation.contains(key) && evaluation[key].is_number() ? evaluation[key].get<double>() : NAN;
  };
  warn(tsr_run_log_evaluation(log_.get(), number("loss"), number("accuracy")));
}

void RunRecorder::add_sample(const std::string& prompt, const std::string& text) const {
  warn(tsr_run_log_sample(log_.get(), prompt.c_str(), text.data(), text.size()));
}

void RunRecorder::add_checkpoint(const std::string& folder) const {
  warn(tsr_run_log_checkpoint(log_.get(), folder.c_str()));
}

void RunRecorder::finish(const std::string& outcome) const {
  check(tsr_run_log_finish(log_.get(), outcome.c_str()));
}

Json RunRecorder::summary() const {
  return Json::parse(text(tsr_run_log_summary, static_cast<const tsr_run_log*>(log_.get())));
}

std::string RunRecorder::progress_line(const tsr_step& step) const {
  const Json now = summary();
  char line[256];
  std::snprintf(line, sizeof line, "step %lld/%lld  loss %.4f", static_cast<long long>(step.step),
                static_cast<long long>(now["steps"].get<int64_t>()), step.loss);
  std::string all = line;
  if (!now["eval_loss"].is_null()) {
    std::snprintf(line, sizeof line, "  held out %.4f", now["eval_loss"].get<double>());
    all += line;
  }
  std::snprintf(line, sizeof line, "  grad norm %.3g  lr %.3g  %.0f tokens/s  ", step.grad_norm, step.lr,
                now["tokens_per_second"].get<double>());
  return all + line + duration_text(now["seconds_left"].get<double>()) + " left  " +
         bytes_text(now["memory_bytes"].get<int64_t>());
}

std::string RunRecorder::limit_line() const {
  const Json limit = summary()["limit"];
  if (limit["share"].is_null()) return "";
  std::string terms;
  for (const Json& term : limit["terms"])
    terms += (terms.empty() ? "" : ", ") + term["phase"].get<std::string>() + " " +
             seconds_text(term["seconds"].get<double>()) + " by " + term["bound"].get<std::string>();
  return percent_text(limit["share"].get<double>()) + " of the physical limit: no step takes less than " +
         seconds_text(limit["seconds"].get<double>()) + " (" + terms + ", rates as " +
         (limit["rates"] == "measured" ? "measured" : "stated; `tessera calibrate` measures") + ")";
}

}  // namespace cli
