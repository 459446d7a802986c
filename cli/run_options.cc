#include "run_options.h"

#include <algorithm>

namespace cli {

namespace {

void add_evaluation_options(CLI::App& command, RunOptions& run) {
  command
      .add_option("--eval-every", run.eval_every,
                  "steps between evaluations of the held-out data; 0: one at the end")
      ->capture_default_str();
  command.add_flag(
      "--keep-best", run.keep_best,
      "keep the checkpoint with the least held-out loss as CHECKPOINT.best, and write --out from it");
  command
      .add_option("--patience", run.patience,
                  "stop after this many evaluations in a row without an improvement, with --keep-best; 0: never")
      ->capture_default_str();
  command
      .add_option("--min-delta", run.min_delta,
                  "minimum decrease of the held-out loss that is an improvement")
      ->capture_default_str();
  command.add_option("--sample", run.samples,
                     "a text to continue at each evaluation, and at the end; may be repeated");
  command.add_option("--sample-message", run.sample_messages,
                     "a user's message to answer, likewise; may be repeated");
  command.add_option("--sample-tokens", run.sample_tokens, "maximum tokens of each sample")->capture_default_str();
}

void add_log_options(CLI::App& command, RunOptions& run) {
  command.add_option(
      "--metrics", run.metrics,
      "file of JSON lines: a header, then loss, rate, gradient norm, seconds and tokens of every step, evaluations, "
      "checkpoints; --resume continues it");
  command.add_option("--tensorboard", run.tensorboard,
                     "folder for TensorBoard's event file");
  command.add_option(
      "--report", run.report,
      "HTML page of the run, rewritten every ten seconds: curves, memory predicted and measured, plan, "
      "physical limit, settings");
}

// The given options, except names of files, which are recorded elsewhere.
Json given_options(const CLI::App& command) {
  static constexpr const char* kFiles[] = {"data", "metrics", "tensorboard", "report", "devices"};
  Json given = Json::object();
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (std::ranges::find(kFiles, name) != std::end(kFiles)) continue;
    std::string text;
    for (const std::string& result : option->results()) text += (text.empty() ? "" : " ") + result;
    given[name] = text;
  }
  return given;
}

std::string list_text(const std::vector<std::string>& texts) {
  return Json(texts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& run) {
  command.add_option("--out", run.output,
                     "file to write: .tsr, or GGUF where the name ends in .gguf; with --lora any other name is a PEFT "
                     "folder, adapters alone. Checkpoints go to OUT.checkpoint");
  command.add_flag("--merge", run.merge, "write a model to --out, with the adapters merged into its weights");
  command.add_option("--steps", run.steps, "optimizer steps")->capture_default_str();
  command.add_option("--checkpoint", run.checkpoint,
                     "folder (default: OUT.checkpoint; without --out the one of --resume)");
  command.add_option("--checkpoint-every,--save-every", run.checkpoint_every,
                     "steps between checkpoints (default STEPS/10; 0: none)");
  command
      .add_option("--keep", run.keep,
                  "number of newest checkpoints to keep; above 1 also as CHECKPOINT.step-N, sharing files")
      ->capture_default_str();
  add_evaluation_options(command, run);
  command.add_option("--resume", run.resume,
                     "continue from this checkpoint (or its model); with another --out or --checkpoint it stays "
                     "unchanged. auto: from that of --out or --checkpoint, where there is one");
  command.add_flag("--overwrite", run.overwrite,
                   "replace the result and the checkpoint of an earlier run");
  add_log_options(command, run);
}

Options run_options(const CLI::App& command, const RunOptions& run, const std::string& model, const std::string& data) {
  Options options = make<Options>(tsr_options_new);
  for (const auto& [key, value] :
       {std::pair("out", run.output), std::pair("resume", run.resume), std::pair("checkpoint", run.checkpoint),
        std::pair("metrics", run.metrics), std::pair("tensorboard", run.tensorboard), std::pair("report", run.report),
        std::pair("model", model), std::pair("data", data)})
    if (!value.empty()) set(options, key, value);
  set(options, "steps", run.steps);
  set(options, "checkpoint_every", run.checkpoint_every);
  set(options, "keep", run.keep);
  set(options, "eval_every", run.eval_every);
  set(options, "patience", run.patience);
  set(options, "min_delta", run.min_delta);
  for (const auto& [key, value] :
       {std::pair("merge", run.merge), std::pair("overwrite", run.overwrite), std::pair("keep_best", run.keep_best)})
    set(options, key, int64_t{value});
  if (!run.samples.empty()) set(options, "samples", list_text(run.samples));
  if (!run.sample_messages.empty()) set(options, "sample_messages", list_text(run.sample_messages));
  set(options, "sample_tokens", run.sample_tokens);
  set(options, "settings", given_options(command).dump(-1, ' ', false, Json::error_handler_t::replace));
  return options;
}

}  // namespace cli
