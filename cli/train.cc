#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>

#include "command.h"
#include "data_options.h"
#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"
#include "steps.h"

namespace cli {

namespace {

struct Arguments : Common {
  std::string model, output, resume, init, checkpoint, frozen, trace, offload_folder, precision, weights,
      fused_loss;
  int64_t steps = 100;
  DataOptions data;
  // Absent: the library decides.
  std::optional<std::string> schedule, decay_shape, optimizer, muon_scale, groups;
  std::optional<double> lr, lr_end, decay_fraction, lora_plus_ratio, clip_norm, watchdog, loss_scaling,
      weight_decay, momentum, dropout;
  std::optional<int64_t> batch, warmup, checkpoint_every, eval_batches;
  Adapters adapters;
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
  if (!args.frozen.empty()) set(options, "frozen", args.frozen);
  set(options, "eval_batches", args.eval_batches);
  if (!args.trace.empty()) set(options, "trace", int64_t{1});
  if (!args.offload_folder.empty()) set(options, "offload_folder", args.offload_folder);
  set(options, "watchdog", args.watchdog);
  return options;
}

std::string progress_line(const tsr_step& step, int64_t steps, int64_t tokens, double eta_seconds) {
  char line[160];
  std::snprintf(line, sizeof line,
                "step %lld/%lld  loss %.4f  grad norm %.3g  lr %.3g  %.0f tokens/s  %.0f s left",
                static_cast<long long>(step.step), static_cast<long long>(steps), step.loss, step.grad_norm,
                step.lr, static_cast<double>(tokens) / step.seconds, eta_seconds);
  return line;
}

// A path that cannot be looked at counts as absent: reading or writing it says why.
bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// The checkpoint a --resume names: the folder itself, or the one beside a model that --out wrote.
std::string resume_folder(const std::string& text) {
  if (is_folder(text)) return text;
  if (is_folder(text + ".checkpoint")) return text + ".checkpoint";
  throw Error(TSR_NOT_FOUND,
              "--resume " + text + ": there is no such folder, nor " + text +
                  ".checkpoint; wanted a checkpoint's folder, or the model that it lies beside");
}

// The parameters alone: the training begins with them.
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
void say_what_is_kept(const Arguments& args, const std::string& checkpoint, int64_t every,
                      const Json& saving) {
  const bool saves = every > 0 && !checkpoint.empty();
  if (args.output.empty() && !saves) {
    std::cerr << "warning: nothing of this run is kept: "
              << (checkpoint.empty() ? "--out FILE writes the model, --checkpoint FOLDER only checkpoints"
                                     : "--checkpoint-every is 0 and there is no --out FILE")
              << '\n';
    return;
  }
  if (is_quiet(args)) return;
  const auto size = [&](const char* key) { return bytes_text(saving[key].get<int64_t>()); };
  std::string kept;
  if (saves)
    kept = "checkpoints of " + size("checkpoint_bytes") + " to " + checkpoint + " every " +
           std::to_string(every) + " steps";
  if (!args.output.empty())
    kept += (kept.empty() ? "" : ", ") + ("the model of " + size("model_bytes") + " to " + args.output);
  std::cerr << "saves " << kept << "; " << size("memory_bytes") << " of memory while saving\n";
}

// ", 12.00 MiB in a file" of a device whose tensors leave it; "" of others.
std::string offloaded_text(const Json& device) {
  std::string text;
  for (const auto& [key, where] : {std::pair("host_arena_bytes", " in host memory"),
                                   std::pair("file_arena_bytes", " in a file (--offload-folder)")})
    if (device.contains(key))
      text += ", " + bytes_text(device[key]["predicted"].get<int64_t>()) + where;
  return text;
}

// Ctrl-C waits for its end.
void save_checkpoint(const Arguments& args, const Trainer& trainer, const std::string& folder) {
  const Saving saving = make<Saving>(tsr_saving_new, trainer.get(), folder.c_str());
  Progress progress(args, kQuietS);
  for (double done = 0; done < 1;) {
    check(tsr_saving_step(saving.get(), &done));
    progress.show("checkpoint " + folder + "  " + std::to_string(static_cast<int>(100 * done)) + " %");
  }
  check(tsr_saving_finish(saving.get()));
}

void save_trained(const Arguments& args, const Trainer& trainer, const Model& model) {
  const Conversion conversion =
      make<Conversion>(tsr_conversion_new_for_trainer, trainer.get(), model.get(), args.output.c_str(),
                       static_cast<const tsr_options*>(nullptr));
  run_steps(conversion, tsr_conversion_step, "writing " + args.output, args);
  check(tsr_conversion_finish(conversion.get(), nullptr));
}

void train(const Arguments& args) {
  // By default ten checkpoints a run.
  const std::string checkpoint = checkpoint_folder(args);
  if (args.checkpoint_every && *args.checkpoint_every < 0)
    throw Error(TSR_INVALID_ARGUMENT, "--checkpoint-every is " + std::to_string(*args.checkpoint_every) +
                                          ", wanted a number of steps, or 0 for no checkpoints");
  const int64_t every = args.checkpoint_every.value_or(args.steps / 10 + (args.steps % 10 > 0 ? 1 : 0));
  check_output(args.output);
  check_output(args.trace, Output::kText);
  const bool saves = every > 0 && !checkpoint.empty();
  if (saves) check(tsr_trainer_check_folder(checkpoint.c_str()));

  const Runtime runtime = open_runtime(args);
  Model given = open_model(args, args.model, args.seed);
  Adapters adapters = args.adapters;
  if (adapters.rank == 0 && !args.resume.empty()) {
    adapters = missing_adapters(resume_folder(args.resume), given);
    if (adapters.rank != 0 && !is_quiet(args))
      std::cerr << "adapters of rank " << adapters.rank << ", as the checkpoint has them (--lora "
                << adapters.rank << ")\n";
  }
  const Model model = adapted(std::move(given), adapters);
  const Dataset dataset = open_data(args, args.data, model, args.model);
  say_what_is_learnt(args, args.data, dataset);
  const Options options = trainer_options(args);
  const Trainer trainer = make_interruptible<Trainer>(tsr_trainer_new, runtime, model.get(),
                                                      static_cast<const tsr_dataset*>(dataset.get()),
                                                      static_cast<const tsr_options*>(options.get()));
  if (!args.resume.empty()) check(tsr_trainer_resume(trainer.get(), resume_folder(args.resume).c_str()));
  if (!args.init.empty()) load_parameters(trainer, args.init);

  Json before = Json::parse(text(tsr_trainer_report, trainer.get()));
  int64_t done = before["step"].get<int64_t>();
  if (!is_quiet(args))
    std::cerr << "plan " << before["plan"]["strategy"].get<std::string>() << "; "
              << bytes_text(before["devices"][0]["arena_bytes"]["predicted"].get<int64_t>())
              << offloaded_text(before["devices"][0]) << " on "
              << before["devices"].size() << " device(s)"
              << (done > 0 ? "; resumed at step " + std::to_string(done) : "") << '\n';

  if (done >= args.steps && !args.resume.empty() && !is_quiet(args))
    std::cerr << "nothing is left to do: the checkpoint is at step " << done << " of --steps " << args.steps
              << "; to go on, give --steps more than " << done << '\n';
  say_what_is_kept(args, checkpoint, every, before["saving"]);

  // A failure from here on leaves the last checkpoint: the one that was resumed, then this run's own.
  std::string last_good = args.resume.empty() ? "" : resume_folder(args.resume);
  const auto name_checkpoint = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      if (last_good.empty()) throw;
      throw Error(error.code(),
                  std::string(error.what()) + "; the last good checkpoint is " + last_good + " (--resume)");
    }
  };
  int64_t saved_at = done;
  const auto save = [&] {
    name_checkpoint([&] { save_checkpoint(args, trainer, checkpoint); });
    last_good = checkpoint, saved_at = done;
  };
  std::vector<double> losses, seconds;
  const int64_t tokens = before["tokens_per_step"].get<int64_t>();
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, interrupt);
  {
    Progress progress(args);
    while (done < args.steps && interrupted == 0) {
      tsr_step step{};
      step.struct_size = sizeof step;
      name_checkpoint([&] { check(tsr_trainer_step(trainer.get(), &step)); });
      done = step.step;
      losses.push_back(step.loss);
      seconds.push_back(step.seconds);
      progress.show(
          progress_line(step, args.steps, tokens, median(seconds) * static_cast<double>(args.steps - done)));
      if (saves && done % every == 0) save();
    }
  }
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  if (done < args.steps) {
    if (saves) save();
    throw Error(TSR_CANCELLED, "stopped at step " + std::to_string(done) +
                                   (saves ? "; go on with --resume " + checkpoint
                                          : "; nothing of it is kept (--out, --checkpoint and "
                                            "--checkpoint-every say where and how often)"));
  }
  // A number of steps that is no multiple of `every` is finished all the same.
  if (saves && (saved_at != done || last_good != checkpoint)) save();

  Json result;
  result["losses"] = losses;
  if (args.data.eval_fraction > 0 || args.data.eval_file) {
    double loss = 0;
    name_checkpoint([&] { check(tsr_trainer_evaluate(trainer.get(), &loss)); });
    result["eval_loss"] = loss;
  } else {
    result["eval_loss"] = nullptr;
  }
  const Json data = Json::parse(text(tsr_dataset_info, static_cast<const tsr_dataset*>(dataset.get())));
  result["unigram_entropy"] = data.contains("unigram_entropy") ? data["unigram_entropy"] : Json(nullptr);
  result["step_seconds"] = median(seconds);
  result["tokens_per_second"] = seconds.empty() ? 0 : static_cast<double>(tokens) / median(seconds);
  const Json report = Json::parse(text(tsr_trainer_report, trainer.get()));
  for (const char* key : {"plan", "devices", "comm", "allocations_after_first_step"})
    result[key] = report[key];
  result["steps"] = done;

  if (!args.output.empty()) {
    name_checkpoint([&] { save_trained(args, trainer, model); });
    result["out"] = args.output;
  }
  if (saves) result["checkpoint"] = checkpoint;
  if (!args.trace.empty()) {
    write_file(args.trace, text(tsr_trainer_trace, trainer.get()));
  }
  if (args.json) return print_json(result);
  if (!losses.empty()) std::cout << "loss       " << losses.front() << " -> " << losses.back() << '\n';
  if (!result["eval_loss"].is_null())
    std::cout << "held out   " << result["eval_loss"].get<double>()
              << " nats a token (unigram entropy of the data " << result["unigram_entropy"].get<double>()
              << ")\n";
  if (!seconds.empty())
    std::cout << "speed      " << rate_text(result["tokens_per_second"].get<double>()) << " tokens/s, "
              << seconds_text(result["step_seconds"].get<double>()) << " a step\n";
  for (const Json& device : result["devices"])
    std::cout << "memory     " << device["name"].get<std::string>() << "  predicted "
              << device["arena_bytes"]["predicted"].get<int64_t>() << ", measured "
              << device["arena_bytes"]["measured"].get<int64_t>() << " bytes" << offloaded_text(device) << '\n';
  for (const Json& comm : result["comm"])
    std::cout << "comm       " << comm["collective"].get<std::string>() << " over "
              << comm["axis"].get<std::string>() << ": " << comm["calls"].get<int64_t>() << " calls, "
              << comm["bytes"].get<int64_t>() << " bytes\n";
  if (!args.output.empty()) std::cout << "wrote      " << args.output << '\n';
  if (saves) std::cout << "checkpoint " << checkpoint << '\n';
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
      "  tessera train model.tsr --data text.txt --lora 8 --out adapted.tsr   (then: tessera merge)\n"
      "  tessera train model.tsr --data chats.jsonl --seq 1024 --packing bfd --lora 8 --out adapted.tsr   "
      "(first: "
      "tessera data)");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  add_data(*command, args->data.path);
  add_data_options(*command, args->data);
  command->add_option("--out", args->output, ".tsr file to write; checkpoints go to OUT.checkpoint");
  command->add_option("--steps", args->steps, "optimizer steps")->capture_default_str();
  command->add_option("--batch", args->batch, "sequences in one step, over all devices (default 8)");
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
  command->add_option("--frozen", args->frozen, "parameters to leave untrained: block.0.*,token_embedding");
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
  command->add_option("--checkpoint-every", args->checkpoint_every,
                      "steps between checkpoints (default STEPS/10; 0: none)");
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
  command->add_option("--trace", args->trace, "write what ran, for Perfetto or chrome://tracing");
  command->add_option("--offload-folder", args->offload_folder,
                      "for what is offloaded to file (default $TMPDIR)");
  command->add_option("--watchdog", args->watchdog,
                      "seconds without progress after which a step fails (default 60; 0: never)");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] { train(*args); });
}

}  // namespace cli
