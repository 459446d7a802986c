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
#include "preference_options.h"
#include "progress.h"
#include "run_checkpoints.h"
#include "run_recorder.h"
#include "run_samples.h"
#include "steps.h"
#include "trained_output.h"
#include "training_text.h"

namespace cli {

namespace {

struct Arguments : Common {
  std::string model, method, output, resume, init, checkpoint, trained, frozen, trace, offload_folder,
      precision, weights, fused_loss;
  int64_t steps = 100;
  DataOptions data;
  RunFiles files;
  // Absent: the library decides.
  std::optional<std::string> schedule, decay_shape, optimizer, muon_scale, groups;
  std::optional<double> lr, lr_end, decay_fraction, lora_plus_ratio, clip_norm, watchdog, loss_scaling,
      weight_decay, momentum, dropout;
  std::optional<int64_t> batch, warmup, checkpoint_every, eval_batches;
  int64_t keep = 1;
  bool merge = false;
  HeldOutOptions held_out;
  SampleOptions samples;
  Adapters adapters;
  LossOptions losses;
};

// Set by Ctrl-C, and by what ends jobs: the step in progress is finished and saved. A second one ends at
// once.
volatile std::sig_atomic_t interrupted = 0;
void interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

Options trainer_options(const Arguments& args) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "batch", args.batch);
  set(options, "seq", args.data.seq);
  set(options, "steps", args.steps);
  set(options, "lr", args.lr);
  set(options, "lr_end", args.lr_end);
  set(options, "schedule", args.schedule);
  set(options, "decay_fraction", args.decay_fraction);
  set(options, "decay_shape", args.decay_shape);
  set(options, "warmup", args.warmup);
  set(options, "optimizer", args.optimizer);
  set(options, "muon_scale", args.muon_scale);
  set(options, "groups", args.groups);
  set(options, "lora_plus_ratio", args.lora_plus_ratio);
  set(options, "clip_norm", args.clip_norm);
  set(options, "seed", args.seed);
  set(options, "weight_decay", args.weight_decay);
  set(options, "momentum", args.momentum);
  set(options, "dropout", args.dropout);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
  set(options, "loss_scaling", args.loss_scaling);
  if (!args.trained.empty()) set(options, "trained", args.trained);
  if (!args.frozen.empty()) set(options, "frozen", args.frozen);
  set(options, "eval_batches", args.eval_batches);
  if (!args.trace.empty()) set(options, "trace", int64_t{1});
  if (!args.offload_folder.empty()) set(options, "offload_folder", args.offload_folder);
  set(options, "watchdog", args.watchdog);
  set_loss(options, args.losses);
  return options;
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
Trainer make_trainer(const Arguments& args, const Runtime& runtime, const Model& model,
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
std::string checkpoint_folder(const Arguments& args) {
  if (!args.checkpoint.empty()) return args.checkpoint;
  if (!args.output.empty()) return args.output + ".checkpoint";
  return args.resume.empty() ? "" : resume_folder(args.resume);
}

// The warning comes whatever is quiet: what is not said now is found out after hours.
void say_what_is_kept(const Arguments& args, const TrainedOutput& output, const RunCheckpoints& checkpoints,
                      int64_t every, const Json& saving) {
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

void train(const CLI::App& command, const Arguments& args) {
  // By default ten checkpoints a run.
  const std::string checkpoint = checkpoint_folder(args);
  if (args.checkpoint_every && *args.checkpoint_every < 0)
    throw Error(TSR_INVALID_ARGUMENT, "--checkpoint-every is " + std::to_string(*args.checkpoint_every) +
                                          ", wanted a number of steps, or 0 for no checkpoints");
  const int64_t every = args.checkpoint_every.value_or(args.steps / 10 + (args.steps % 10 > 0 ? 1 : 0));
  const bool holds_out = args.data.eval_fraction > 0 || args.data.eval_file;
  HeldOut held_out(args.held_out, holds_out);
  TrainedOutput output(args.output, args.merge);
  output.check_path();
  check_output(args.trace, Output::kText);
  check_output(args.files.report);
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
  const Dataset dataset = open_data(args, args.data, model, args.model);
  say_what_is_learnt(args, args.data, dataset);
  Json methods;
  if (!args.method.empty()) {
    model = model_for_method(runtime, model, dataset.get(), trainer_options(args), args.method, adapters,
                             methods);
    if (!is_quiet(args)) std::cerr << methods_text(methods);
  }
  output.check_model(model);
  const Trainer trainer = make_trainer(args, runtime, model, dataset);
  if (!resumed.empty()) {
    check(tsr_trainer_resume(trainer.get(), resumed.c_str()));
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
      if (checkpoints.last_good().empty()) throw;
      throw Error(error.code(), std::string(error.what()) + "; the last good checkpoint is " +
                                    checkpoints.last_good() + " (--resume)");
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
  std::vector<double> losses, seconds;
  Json rewards = Json::array();
  const int64_t tokens = before["tokens_per_step"].get<int64_t>();
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, interrupt);
  {
    Progress progress(args);
    while (done < args.steps && interrupted == 0 && !held_out.is_stopped()) {
      tsr_step step{};
      step.struct_size = sizeof step;
      name_checkpoint([&] { check(tsr_trainer_step(trainer.get(), &step)); });
      done = step.step;
      losses.push_back(step.loss);
      seconds.push_back(step.seconds);
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
    recorder.finish("stopped at step " + std::to_string(done));
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
  result["step_seconds"] = median(seconds);
  result["tokens_per_second"] = seconds.empty() ? 0 : static_cast<double>(tokens) / median(seconds);
  const Json report = Json::parse(text(tsr_trainer_report, trainer.get()));
  if (has_rewards) result["rewards"] = rewards;
  for (const char* key : {"plan", "devices", "comm", "allocations_after_first_step"})
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
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "train", "fine-tune a model on a text or on rows of training data, on every device given");
  command->footer(
      "Example:\n  tessera train model.tsr --data text.txt --steps 200 --devices cpu:2 --out tuned.tsr\n"
      "  tessera train model.tsr --data text.txt --steps 200 --resume tuned.tsr --out tuned.tsr     (goes "
      "on)\n"
      "  tessera train model.tsr --data text.txt --steps 300 --resume tuned.tsr --out further.tsr   "
      "(tuned.tsr and "
      "its checkpoint stay)\n"
      "  tessera train model.tsr --data text.txt --devices cpu:4 --parallel dp=2,tp=2,zero=1 --out tuned.tsr "
      "--json\n"
      "  tessera train model.tsr --data text.txt --lora 8 --out adapter   (as PEFT has it; adapted.tsr: a "
      "model's file)\n"
      "  tessera train model.tsr --data text.txt --eval-fraction 0.1 --eval-every 20 --patience 3 --keep 2 "
      "--out tuned.tsr\n"
      "  tessera train model.tsr --data text.txt --method auto --memory-limit 8GiB --out tuned.tsr\n"
      "  tessera train model.tsr --data chats.jsonl --seq 1024 --packing bfd --lora 8 --out adapted.tsr   "
      "(first: "
      "tessera data)\n"
      "  tessera train model.tsr --data text.txt --out tuned.tsr --metrics run.jsonl --tensorboard runs/one "
      "--report "
      "run.html\n"
      "  tessera train model.tsr --data pairs.jsonl --loss dpo --lr 1e-6 --seq 1024 --lora 16 --out "
      "adapted.tsr   "
      "(preferences)\n"
      "  tessera train tuned.tsr --data labelled.jsonl --loss kto --reference model.tsr --cache auto --out "
      "better.tsr");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  add_data(*command, args->data.path);
  add_data_options(*command, args->data);
  add_loss_options(*command, args->losses);
  command->add_option(
      "--out", args->output,
      ".tsr file to write; of adapters (--lora) a name without .tsr is a folder as PEFT has it, adapters "
      "alone. Checkpoints go to OUT.checkpoint");
  command->add_flag("--merge", args->merge, "--out is a model's file with the adapters in its weights");
  command->add_option("--steps", args->steps, "optimizer steps")->capture_default_str();
  command->add_option("--batch", args->batch,
                      "sequences, or pairs of a preference loss, in one step, over all devices (default 8)");
  command->add_option("--seq", args->data.seq, "tokens a sequence (default 128)");
  command->add_option("--lr", args->lr, "peak learning rate (default 1e-4; from scratch 1e-3 and more)");
  command->add_option("--schedule", args->schedule, "constant (default), cosine, linear or wsd");
  command->add_option("--decay-fraction", args->decay_fraction,
                      "of wsd: share of the steps, at the end, on the way down (default 0.1)");
  command->add_option("--decay-shape", args->decay_shape, "of wsd: linear (default) or sqrt, 1 - sqrt(x)");
  command->add_option("--warmup", args->warmup, "steps of linear rise (default 10; 0: none)");
  command->add_option("--lr-end", args->lr_end,
                      "rate at the end of the schedule as a fraction of lr (default 0)");
  command->add_option("--optimizer", args->optimizer,
                      "adamw (default), adamw8 (moments in 8 bits), adafactor, lion, muon or sgd");
  command->add_option(
      "--weight-decay", args->weight_decay,
      "of matrices, not of norms and biases (default: 0.01 for adamw and adamw8, 0.1 for muon, 0 for "
      "others)");
  command->add_option("--groups", args->groups,
                      "rate and decay by name, the first match counts: "
                      "'[{\"match\": \"block.0.*\", \"lr_factor\": 0.5, \"weight_decay\": 0.1}]'");
  command->add_option("--lora-plus-ratio", args->lora_plus_ratio,
                      "factor on the rate of *.lora_b (default 1)");
  command->add_option("--momentum", args->momentum, "of sgd (default 0.9) and muon (default 0.95)");
  command->add_option("--muon-scale", args->muon_scale,
                      "of muon: match_rms_adamw (default), with which one rate serves all, or original");
  command->add_option("--clip-norm", args->clip_norm,
                      "bound on the global gradient norm (default 1.0); 0: none");
  command->add_option(
      "--loss-scaling", args->loss_scaling,
      "first factor on the loss, a power of two, then adapted; 0: none (default: 65536 with f16)");
  command->add_option("--precision", args->precision,
                      "f32, tf32, bf16, f16 or fp8, with f32 parameters (default: f32)");
  command->add_option(
      "--weights", args->weights,
      "bf16: what trains is stored so, without f32 beside it, and rounded by random bits (default: model)");
  command->add_option(
      "--fused-loss", args->fused_loss,
      "on, off or auto: output head and loss together, without holding the logits (default: auto)");
  command->add_option("--dropout", args->dropout, "probability for every dropout of the model");
  command->add_option("--trained", args->trained,
                      "parameters that train, all others do not: block.1*,*norm* (default: all that can)");
  command->add_option("--frozen", args->frozen, "parameters to leave untrained: block.0.*,token_embedding");
  add_method(*command, args->method);
  add_adapter_options(*command, args->adapters);
  command
      ->add_option("--eval-fraction", args->data.eval_fraction,
                   "last part of the text, or share of the rows, held out")
      ->capture_default_str();
  command->add_option("--eval-batches", args->eval_batches,
                      "most batches of it to evaluate (default 0: all)");
  command->add_option("--seed", args->seed, "of data order and dropout")->capture_default_str();
  command->add_option("--checkpoint", args->checkpoint,
                      "folder (default: OUT.checkpoint; without --out the one of --resume)");
  command->add_option("--checkpoint-every,--save-every", args->checkpoint_every,
                      "steps between checkpoints (default STEPS/10; 0: none)");
  command
      ->add_option("--keep", args->keep,
                   "so many of the newest checkpoints; above 1 also as CHECKPOINT.step-N, sharing files")
      ->capture_default_str();
  add_held_out_options(*command, args->held_out);
  add_sample_options(*command, args->samples);
  CLI::Option* const resume =
      command->add_option("--resume", args->resume,
                          "go on from this checkpoint (or the model beside it), which with another --out or "
                          "--checkpoint stays as it is");
  command
      ->add_option(
          "--init", args->init,
          "begin with the parameters of this checkpoint, whatever optimizer, batch and data it was made "
          "with")
      ->excludes(resume);
  add_run_files(*command, args->files);
  command->add_option("--trace", args->trace, "write what ran, for Perfetto or chrome://tracing");
  command->add_option("--offload-folder", args->offload_folder,
                      "for what is offloaded to file (default $TMPDIR)");
  command->add_option("--watchdog", args->watchdog,
                      "seconds without progress after which a step fails (default 60; 0: never)");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args, command] { train(*command, *args); });
}

}  // namespace cli
