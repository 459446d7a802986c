#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>

#include "command.h"
#include "data_options.h"
#include "held_out.h"
#include "interruptible.h"
#include "method.h"
#include "output_file.h"
#include "preference_options.h"
#include "progress.h"
#include "run_checkpoints.h"
#include "run_recorder.h"
#include "run_samples.h"
#include "steps.h"
#include "train_arguments.h"
#include "trained_output.h"
#include "training_text.h"

namespace cli {

namespace {

// Set by Ctrl-C, and by what ends jobs: the step in progress is finished and saved. A second one ends at
// once.
volatile std::sig_atomic_t interrupted = 0;
void interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

std::string step_rewards(const tsr_step& step) {
  return rewards_text(step.chosen_reward, step.rejected_reward, step.reward_margin, step.reward_accuracy);
}

Json rewards_json(const tsr_step& step) {
  return {{"chosen_reward", step.chosen_reward},
          {"rejected_reward", step.rejected_reward},
          {"reward_margin", step.reward_margin},
          {"reward_accuracy", step.reward_accuracy}};
}

// Plans, computes what a reference says, and loads: with progress, where that takes long.
Trainer make_trainer(const TrainArguments& args, const Runtime& runtime, const Model& model,
                     const Dataset& dataset) {
  const Options options = trainer_options(args);
  const Preparation preparation = make<Preparation>(tsr_preparation_new, runtime.get(), model.get(),
                                                    static_cast<const tsr_dataset*>(dataset.get()),
                                                    static_cast<const tsr_options*>(options.get()));
  run_steps(preparation, tsr_preparation_step, "preparing the training", args);
  return make<Trainer>(tsr_preparation_finish, preparation.get());
}

// A path that cannot be looked at counts as absent: reading or writing it says why.
bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// The checkpoint that --resume names: the folder itself, or that next to the result of --out (a file or a folder of
// adapters).
std::string resume_folder(const std::string& text) {
  std::string name = text;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  std::error_code ignored;
  const bool holds_adapters = std::filesystem::exists(text + "/adapter_config.json", ignored);
  if (is_folder(text) && !holds_adapters) return text;
  if (is_folder(name + ".checkpoint")) return name + ".checkpoint";
  throw Error(TSR_NOT_FOUND,
              "--resume " + text + ": there is no such folder, nor " + text +
                  ".checkpoint; wanted a checkpoint's folder, or the model or adapters that it lies beside");
}

// Loads the parameters alone, with which the training begins.
void load_parameters(const Trainer& trainer, const std::string& folder) {
  const Options alone = make<Options>(tsr_options_new);
  check(tsr_options_set_i64(alone.get(), "optimizer", 0));
  check(tsr_trainer_load_state(trainer.get(), folder.c_str(), alone.get()));
}

// The folder of the run's checkpoints; empty: none is named. With --out it is the result's own, so that what
// was resumed stays as it is; a run that is resumed alone goes on in its folder.
std::string checkpoint_folder(const TrainArguments& args) {
  if (!args.checkpoint.empty()) return args.checkpoint;
  if (!args.output.empty()) return args.output + ".checkpoint";
  return args.resume.empty() ? "" : resume_folder(args.resume);
}

// Refuses to lose what an earlier run wrote, unless --overwrite or --resume says so.
void check_earlier_run(const TrainArguments& args, const std::string& checkpoint) {
  if (args.overwrite) return;
  const std::string resumed = args.resume.empty() ? "" : resume_folder(args.resume);
  try {
    check(tsr_run_check_paths(args.output.c_str(), checkpoint.c_str(), resumed.c_str()));
  } catch (const Error& error) {
    if (error.code() != TSR_FAILED_PRECONDITION) throw;
    std::string ways = "--overwrite begins again and replaces it";
    if (!checkpoint.empty() && is_folder(checkpoint))
      ways = "--resume " +
             (args.output.empty() || checkpoint != args.output + ".checkpoint" ? checkpoint : args.output) +
             " goes on with it, " + ways;
    throw Error(error.code(), std::string(error.what()) + " (" + ways + ")");
  }
}

// The warning comes whatever is quiet: what is not said now is found out after hours.
void say_what_is_kept(const TrainArguments& args, const TrainedOutput& output,
                      const RunCheckpoints& checkpoints, int64_t every, const Json& saving) {
  if (output.is_empty() && !checkpoints.writes()) {
    std::cerr << "warning: nothing of this run is kept: "
              << (checkpoint_folder(args).empty()
                      ? "--out FILE writes the model, --checkpoint FOLDER only checkpoints"
                      : "--checkpoint-every is 0 and there is no --out FILE")
              << '\n';
    return;
  }
  if (is_quiet(args)) return;
  const auto size = [&](const char* key) { return bytes_text(saving[key].get<int64_t>()); };
  std::string kept;
  if (checkpoints.writes())
    kept = "checkpoints of " + size("checkpoint_bytes") + " to " + checkpoints.folder() + " every " +
           std::to_string(every) + " steps, each from a copy of " + size("snapshot_bytes") +
           " in memory while the training goes on";
  if (!output.is_empty())
    kept += (kept.empty() ? "" : "; ") +
            (output.noun() + (output.is_whole_model() ? " of " + size("model_bytes") : "") + " to " +
             output.path());
  std::cerr << "saves " << kept << '\n';
}

// Loads the best values, where a checkpoint has them, for --out. Returns the trainer's step then.
int64_t take_best(const Trainer& trainer, const HeldOut& held_out, const RunCheckpoints& checkpoints,
                  int64_t done) {
  if (!held_out.keeps_best() || held_out.best_step() == 0 || held_out.best_step() == done) return done;
  const std::string folder = checkpoints.best_folder();
  const Json info = is_folder(folder) ? Json::parse(text(tsr_checkpoint_info, folder.c_str())) : Json();
  if (info.is_null() || info["step"] != held_out.best_step()) {
    std::cerr << "warning: the checkpoint of the best step, " << held_out.best_step() << ", is not in "
              << folder << ": --out has the values of step " << done << '\n';
    return done;
  }
  check(tsr_trainer_resume(trainer.get(), folder.c_str()));
  return held_out.best_step();
}

void train(const CLI::App& command, const TrainArguments& args) {
  // By default ten checkpoints a run.
  const std::string checkpoint = checkpoint_folder(args);
  if (args.checkpoint_every && *args.checkpoint_every < 0)
    throw Error(TSR_INVALID_ARGUMENT, "--checkpoint-every is " + std::to_string(*args.checkpoint_every) +
                                          ", wanted a number of steps, or 0 for no checkpoints");
  const int64_t every = args.checkpoint_every.value_or(args.steps / 10 + (args.steps % 10 > 0 ? 1 : 0));
  const bool holds_out = args.data.eval_fraction > 0 || args.data.eval_file;
  check_options(trainer_options(args), "trainer");
  check_data_options(args, args.data);
  HeldOut held_out(args.held_out, holds_out);
  TrainedOutput output(args.output, args.merge);
  output.check_path();
  check_output(args.trace, Output::kText);
  check_output(args.files.report, Output::kFile);
  check_earlier_run(args, every > 0 ? checkpoint : "");
  RunCheckpoints checkpoints(every > 0 ? checkpoint : "", args.keep, held_out.keeps_best());

  if (args.method == "auto" && !args.resume.empty())
    throw Error(TSR_INVALID_ARGUMENT, "--method auto with --resume: wanted the method that was chosen then");
  const Runtime runtime = open_runtime(args);
  Model given = open_model(args, args.model, args.seed);
  const std::string resumed = args.resume.empty() ? "" : resume_folder(args.resume);
  Adapters adapters = args.adapters;
  if (adapters.rank == 0 && !resumed.empty() && !has_adapter_options(args.adapters)) {
    adapters = missing_adapters(resumed, given);
    if (adapters.rank != 0 && !is_quiet(args))
      std::cerr << "adapters of rank " << adapters.rank << ", as the checkpoint has them (--lora "
                << adapters.rank << ")\n";
  }
  Model model = args.method.empty() ? adapted(std::move(given), adapters) : std::move(given);
  if (args.method.empty()) output.check_model(model, !resumed.empty());
  const Dataset dataset = open_data(args, args.data, model, args.model);
  say_what_is_learnt(args, args.data, dataset);
  Json methods;
  if (!args.method.empty()) {
    model = model_for_method(runtime, model, dataset.get(), trainer_options(args), args.method, adapters,
                             methods);
    if (!is_quiet(args)) std::cerr << methods_text(methods);
  }
  if (!args.method.empty()) output.check_model(model, !resumed.empty());
  const Trainer trainer = make_trainer(args, runtime, model, dataset);
  if (!resumed.empty()) {
    check(tsr_trainer_resume(trainer.get(), resumed.c_str()));
    output.check_resumed(trainer, model);
    held_out.restore(Json::parse(text(tsr_checkpoint_info, resumed.c_str()))["notes"]);
  }
  if (!args.init.empty()) load_parameters(trainer, args.init);

  const Json before = Json::parse(text(tsr_trainer_report, trainer.get()));
  int64_t done = before["step"].get<int64_t>();
  if (!is_quiet(args))
    std::cerr << "plan " << before["plan"]["strategy"].get<std::string>() << "; "
              << bytes_text(before["devices"][0]["arena_bytes"]["predicted"].get<int64_t>())
              << offloaded_text(before["devices"][0]) << " on " << before["devices"].size() << " device(s)"
              << (done > 0 ? "; resumed at step " + std::to_string(done) : "") << '\n';

  if (!resumed.empty() && !is_quiet(args)) {
    if (done >= args.steps)
      std::cerr << "nothing is left to do: the checkpoint is at step " << done << " of --steps " << args.steps
                << "; to go on, give --steps more than " << done << '\n';
    else if (held_out.is_stopped())
      std::cerr << "nothing is left to do: " << held_out.stopped_text()
                << "; to go on, give more --patience\n";
  }
  say_what_is_kept(args, output, checkpoints, every, before["saving"]);
  if (!resumed.empty() && !checkpoints.resume(resumed, done, held_out.best_step())) {
    std::cerr << "warning: the checkpoint of the best step so far, " << held_out.best_step()
              << ", is not beside " << resumed << ": the best is that of the steps to come\n";
    held_out.forget_best();
  }

  // A failure from here on leaves the last checkpoint: the one that was resumed, then this run's own.
  const auto name_checkpoint = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      try {
        checkpoints.wait();
      } catch (const Error&) {  // the first of two errors counts
      }
      const std::string last_good = checkpoints.last_good();
      if (last_good.empty()) throw;
      throw Error(error.code(),
                  std::string(error.what()) + "; the last good checkpoint is " + last_good + " (--resume)");
    }
  };
  const RunRecorder recorder(command, args.files, trainer, args.steps, args.model, args.data.path);
  // A checkpoint is logged once it is whole, while it is still the newest.
  int64_t logged = checkpoints.saved_step();
  const auto log_saved = [&] {
    checkpoints.wait();
    if (!checkpoints.writes() || checkpoints.saved_step() == logged) return;
    logged = checkpoints.saved_step();
    recorder.add_checkpoint(checkpoint);
  };
  const auto save = [&](bool is_best) {
    log_saved();
    checkpoints.save(trainer, done, is_best, held_out.notes());
  };
  const RunSamples samples(args.samples, trainer);
  const auto write_samples = [&](const auto& say) {
    for (const WrittenSample& sample : samples.write()) {
      recorder.add_sample(sample.prompt, sample.text);
      say(sample_line(sample));
    }
  };
  const auto is_saved = [&] {
    checkpoints.wait();
    return !checkpoints.writes() || checkpoints.saved_step() == done;
  };
  const bool has_rewards = is_of_preferences(args.losses);
  std::vector<double> losses;
  Json rewards = Json::array();
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, interrupt);
  {
    Progress progress(args);
    while (done < args.steps && interrupted == 0 && !held_out.is_stopped()) {
      tsr_step step{};
      step.struct_size = sizeof step;
      name_checkpoint([&] { check(tsr_trainer_step(trainer.get(), &step)); });
      done = step.step;
      losses.push_back(step.loss);
      if (has_rewards) rewards.push_back(rewards_json(step));
      name_checkpoint([&] {
        recorder.add_step();
        if (has_rewards) recorder.add_values("rewards/", rewards.back());
      });
      progress.show(recorder.progress_line(step) + (has_rewards ? "  " + step_rewards(step) : ""));
      bool is_best = false;
      if (held_out.is_due(done, args.steps)) {
        Json found;
        name_checkpoint([&] { found = evaluate(trainer); });
        recorder.add_evaluation(found);
        is_best = held_out.add(done, found);
        progress.say("step " + std::to_string(done) + "  held out: " + evaluation_text(found) +
                     (is_best ? "  (best so far)" : ""));
        name_checkpoint([&] { write_samples([&](const std::string& line) { progress.say(line); }); });
      }
      if (checkpoints.writes() && (done % every == 0 || (is_best && held_out.keeps_best())))
        name_checkpoint([&] { save(is_best); });
    }
  }
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  const bool stops_early = held_out.is_stopped() && done < args.steps;
  if (done < args.steps && !stops_early) {
    name_checkpoint([&] {
      if (!is_saved()) save(false);
      checkpoints.finish();
      log_saved();
    });
    try {
      recorder.finish("stopped at step " + std::to_string(done));
    } catch (const Error& error) {
      std::cerr << "warning: the run's log has no end: " << error.what() << '\n';
    }
    throw Error(TSR_CANCELLED, "stopped at step " + std::to_string(done) +
                                   (checkpoints.writes() ? "; go on with --resume " + checkpoint
                                                         : "; nothing of it is kept (--out, --checkpoint and "
                                                           "--checkpoint-every say where and how often)"));
  }
  if (stops_early && !losses.empty() && !is_quiet(args))
    std::cerr << "stopped at step " << done << ": " << held_out.stopped_text() << '\n';
  // --out is tried even where something before it fails.
  std::optional<Error> failure;
  const auto attempt = [&](const auto& work) {
    try {
      name_checkpoint(work);
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
  };
  // The last checkpoint also follows a number of steps that `every` does not divide.
  attempt([&] {
    if (!is_saved()) save(false);
    checkpoints.finish();
    log_saved();
  });

  Json result;
  result["losses"] = losses;
  Json evaluation = held_out.last(done);
  if (holds_out && evaluation.is_null())
    attempt([&] {
      evaluation = evaluate(trainer);
      recorder.add_evaluation(evaluation);
    });
  if (!held_out.is_due(done, args.steps))
    attempt([&] {
      write_samples([&](const std::string& line) {
        if (!is_quiet(args)) std::cerr << line << '\n';
      });
    });
  const Json summary = recorder.summary();
  const std::string limit = recorder.limit_line();
  attempt(
      [&] { recorder.finish(stops_early ? "stopped early at step " + std::to_string(done) : "finished"); });
  int64_t written = done;
  if (!output.is_empty()) name_checkpoint([&] { written = take_best(trainer, held_out, checkpoints, done); });
  if (written != done) name_checkpoint([&] { evaluation = evaluate(trainer); });
  result["eval_loss"] = evaluation.is_null() ? Json(nullptr) : evaluation["loss"];
  result["evaluation"] = evaluation;
  result["evaluations"] = held_out.all();
  if (held_out.keeps_best() && held_out.best_step() > 0) {
    result["best_step"] = held_out.best_step();
    result["best_loss"] = held_out.best_loss();
  }
  if (args.held_out.patience > 0) result["stopped_early"] = stops_early;
  const Json data = Json::parse(text(tsr_dataset_info, static_cast<const tsr_dataset*>(dataset.get())));
  result["unigram_entropy"] = data.contains("unigram_entropy") ? data["unigram_entropy"] : Json(nullptr);
  // As the page has them.
  for (const char* key : {"step_seconds", "tokens_per_second"}) result[key] = summary[key];
  const Json report = Json::parse(text(tsr_trainer_report, trainer.get()));
  if (has_rewards) result["rewards"] = rewards;
  for (const char* key : {"plan", "devices", "comm", "allocations_after_first_step", "unlabelled_steps"})
    result[key] = report[key];
  result["steps"] = done;
  for (const char* key : {"best_eval_loss", "seconds", "limit"}) result[key] = summary[key];
  for (const auto& [key, path] :
       {std::pair("metrics", args.files.metrics), std::pair("tensorboard", args.files.tensorboard),
        std::pair("report", args.files.report)})
    if (!path.empty()) result[key] = path;
  if (!methods.is_null()) result["methods"] = methods;

  if (!output.is_empty()) {
    name_checkpoint([&] { output.write(args, trainer, model); });
    result["out"] = args.output;
    if (written != done) result["out_step"] = written;
  }
  if (checkpoints.writes()) result["checkpoint"] = checkpoint;
  if (!args.trace.empty()) {
    write_file(args.trace, text(tsr_trainer_trace, trainer.get()));
  }
  if (failure) throw Error(*failure);
  args.json ? print_json(result) : print_result(result, output.path(), limit);
}

}  // namespace

void register_train(CLI::App& app) {
  auto args = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand(
      "train", "fine-tune a model on a text or on rows of training data, on every device given");
  command->footer(
      "Example:\n  tessera train model.tsr --data text.txt --steps 200 --devices cpu:2 --out tuned.tsr\n"
      "  tessera train model.tsr --data text.txt --steps 200 --resume tuned.tsr --out tuned.tsr   # goes "
      "on\n"
      "  tessera train model.tsr --data text.txt --steps 300 --resume tuned.tsr --out further.tsr   # "
      "tuned.tsr and its checkpoint stay\n"
      "  tessera train model.tsr --data text.txt --devices cpu:4 --parallel dp=2,tp=2,zero=1 --out parallel.tsr "
      "--json\n"
      "  tessera train model.tsr --data text.txt --lora 8 --out adapter   # as PEFT has it; adapted.tsr: "
      "a model's file\n"
      "  tessera train model.tsr --data text.txt --eval-fraction 0.1 --eval-every 20 --patience 3 --keep 2 "
      "--out best.tsr\n"
      "  tessera train model.tsr --data text.txt --method auto --memory-limit 8GiB --out fitted.tsr\n"
      "  tessera train model.tsr --data chats.jsonl --seq 1024 --packing bfd --lora 8 --out adapted.tsr   # "
      "first: tessera data\n"
      "  tessera train model.tsr --data text.txt --out logged.tsr --metrics run.jsonl --tensorboard runs/one "
      "--report "
      "run.html\n"
      "  tessera train model.tsr --data pairs.jsonl --loss dpo --lr 1e-6 --seq 1024 --lora 16 --out "
      "preferred.tsr   # preferences\n"
      "  tessera train tuned.tsr --data labelled.jsonl --loss kto --reference model.tsr --cache auto --out "
      "better.tsr");
  add_train_arguments(*command, *args);
  command->callback([args, command] { train(*command, *args); });
}

}  // namespace cli
