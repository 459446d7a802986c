#include <atomic>
#include <csignal>
#include <iostream>
#include <string>

#include "command.h"
#include "data_options.h"
#include "method.h"
#include "plan_text.h"
#include "progress.h"
#include "steps.h"
#include "text_files.h"
#include "train_arguments.h"
#include "training_text.h"

namespace cli {

namespace {

// The run that Ctrl-C and termination signals stop: the step in progress is finished and saved. A second one ends at once.
std::atomic<tsr_run*> running = nullptr;
void interrupt(int signal) {
  tsr_run_stop(running);
  std::signal(signal, SIG_DFL);
}

class StoppedBySignal {
 public:
  explicit StoppedBySignal(const Run& run) {
    running = run.get();
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, interrupt);
  }
  ~StoppedBySignal() {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    running = nullptr;
  }
};

// Plans, computes the log probabilities of a reference, and loads: with progress if slow.
Trainer make_trainer(const TrainArguments& args, const Runtime& runtime, const Model& model,
                     const Dataset& dataset) {
  const Options options = trainer_options(args);
  const Work work = make<Work>(tsr_trainer_begin, runtime.get(), model.get(),
                                                    static_cast<const tsr_dataset*>(dataset.get()),
                                                    static_cast<const tsr_options*>(options.get()));
  run_steps(work, "preparing the training", args);
  Trainer trainer = make<Trainer>(tsr_trainer_finish, work.get());
  if (args.init.empty()) return trainer;
  const Options alone = make<Options>(tsr_options_new);
  set(alone, "optimizer", int64_t{0});
  check(tsr_trainer_load_state(trainer.get(), args.init.c_str(), alone.get()));
  return trainer;
}

// The folder of the checkpoint that the run goes on from; empty: none.
std::string resumed_folder(const RunOptions& run) {
  if (run.resume != "auto") return short_text(tsr_run_resumed_folder, run.resume.c_str());
  const std::string& own = run.checkpoint.empty() ? run.output : run.checkpoint;
  try {
    return short_text(tsr_run_resumed_folder, own.c_str());
  } catch (const Error& error) {
    if (error.code() != TSR_NOT_FOUND) throw;
    return {};
  }
}

// Returns the adapters of the command line, else those of the resumed checkpoint.
Adapters adapters_of_run(const TrainArguments& args, const Model& model) {
  Adapters adapters = args.adapters;
  if (adapters.rank != 0 || args.run.resume.empty() || has_adapter_options(adapters)) return adapters;
  const std::string folder = resumed_folder(args.run);
  if (folder.empty()) return adapters;
  adapters = missing_adapters(folder, model);
  if (adapters.rank != 0 && !is_quiet(args))
    std::cerr << "adapters of rank " << adapters.rank << ", as the checkpoint has them (--lora " << adapters.rank << ")\n";
  return adapters;
}

// Shows the events of the run until its end. Returns its outcome.
std::string show_run(const TrainArguments& args, const Run& run) {
  Progress progress(args);
  const StoppedBySignal stopped(run);
  tsr_run_event event{};
  event.struct_size = sizeof event;
  while (true) {
    check(tsr_run_next(run.get(), &event));
    const Json details = Json::parse(std::string(event.details, event.details_size));
    const auto message = [&] { return details["message"].get<std::string>(); };
    switch (event.kind) {
      case TSR_RUN_STEP:
        progress.show(step_text(details));
        break;
      case TSR_RUN_EVALUATION:
        progress.say("step " + std::to_string(event.step) + "  held out: " + evaluation_text(details) +
                     (details["is_best"].get<bool>() ? "  (best so far)" : ""));
        break;
      case TSR_RUN_SAMPLE:
        progress.say(sample_text(details));
        break;
      case TSR_RUN_PROGRESS:
        progress.show(details["work"].get<std::string>() + "  " + percent_text(details["done"].get<double>()));
        break;
      case TSR_RUN_NOTE:
        progress.say("note: " + message());
        break;
      case TSR_RUN_WARNING:  // even if quiet: hours later it is too late
        is_quiet(args) ? void(std::cerr << "warning: " << message() << '\n') : progress.say("warning: " + message());
        break;
      case TSR_RUN_END:
        return details["outcome"];
      default:
        break;
    }
  }
}

// The result that --json prints, and print_result shows.
Json result_of(const TrainArguments& args, Json report, const Dataset& dataset, const Json& methods) {
  const Json data = Json::parse(text(tsr_dataset_info, static_cast<const tsr_dataset*>(dataset.get())));
  report["unigram_entropy"] = data.contains("unigram_entropy") ? data["unigram_entropy"] : Json(nullptr);
  report["steps"] = report["step"];
  if (report["out_step"] == report["step"]) report.erase("out_step");
  if (args.run.patience == 0) report.erase("stopped_early");
  for (const char* key : {"step", "outcome", "saving", "checkpoint_every", "saved_step", "out_kind"}) report.erase(key);
  for (const char* key : {"best_step", "best_loss", "checkpoint", "out", "out_step"})
    if (report.contains(key) && report[key].is_null()) report.erase(key);
  for (const auto& [key, path] : {std::pair("metrics", args.run.metrics), std::pair("tensorboard", args.run.tensorboard),
                                  std::pair("report", args.run.report)})
    if (!path.empty()) report[key] = path;
  if (!methods.is_null()) report["methods"] = methods;
  return report;
}

void train(const CLI::App& command, const TrainArguments& args) {
  const Options options = run_options(command, args.run, args.model, args.data.path);
  check_options(trainer_options(args), "trainer");
  check_data_options(args, args.data);
  check(tsr_run_check(options.get(), nullptr, nullptr));
  check_output(args.trace, Output::kText);
  check_output(args.run.report, Output::kFile);
  if (args.method == "auto" && !args.run.resume.empty())
    throw Error(TSR_INVALID_ARGUMENT, "--method auto with --resume: wanted the method that was chosen then");

  const Runtime runtime = open_runtime(args);
  Model given = open_model(args, args.model, args.seed);
  const Adapters adapters = adapters_of_run(args, given);
  Model model = args.method.empty() ? add_adapters(std::move(given), adapters) : std::move(given);
  if (args.method.empty()) check(tsr_run_check(options.get(), model.get(), nullptr));
  const Dataset dataset = open_data(args, args.data, model, args.model);
  say_what_is_learnt(args, args.data, dataset);
  Json methods;
  if (!args.method.empty()) {
    model = model_for_method(runtime, model, dataset.get(), trainer_options(args), args.method, adapters, methods);
    if (!is_quiet(args)) std::cerr << methods_text(methods);
  }
  check(tsr_run_check(options.get(), model.get(), dataset.get()));
  const Trainer trainer = make_trainer(args, runtime, model, dataset);
  const Run run = make<Run>(tsr_run_new, trainer.get(), static_cast<const tsr_options*>(options.get()));

  const Json before = Json::parse(text(tsr_run_report, run.get()));
  if (!is_quiet(args)) {
    const Json& device = before["devices"][0];
    std::cerr << "plan " << before["plan"]["strategy"].get<std::string>() << "; "
              << bytes_text(device["arena_bytes"]["predicted"].get<int64_t>()) << offloaded_text(device) << " on "
              << before["plan"]["device_count"].get<int64_t>() << " device(s)";
    if (before["plan"].contains("network_bytes"))
      std::cerr << ", " << bytes_text(before["plan"]["network_bytes"].get<int64_t>()) << " a step between machines";
    if (const auto step = before["step"].get<int64_t>(); step > 0) std::cerr << "; resumed at step " << step;
    const std::string kept = kept_text(before);
    std::cerr << '\n' << (kept.empty() ? "" : "saves " + kept + "\n");
  }
  const std::string outcome = show_run(args, run);
  const Json report = Json::parse(text(tsr_run_report, run.get()));
  if (outcome.starts_with("stopped at"))
    throw Error(TSR_CANCELLED,
                outcome + (report["checkpoint"].is_null()
                               ? "; nothing of it is kept (--out, --checkpoint and --checkpoint-every say where and how often)"
                               : "; go on with --resume " + report["checkpoint"].get<std::string>()));
  if (!args.trace.empty() && is_first_process()) write_file(args.trace, text(tsr_trainer_take_trace, trainer.get()));
  const Json result = result_of(args, report, dataset, methods);
  args.json ? print_json(result) : print_result(result, args.run.output);
}

}  // namespace

void register_train(CLI::App& app) {
  auto args = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand(
      "train", "fine-tune a model on a text or on rows of training data, on every device given");
  command->footer(
      "Example:\n"
      "  tessera train model.tsr --data text.txt --steps 200 --devices cpu:2 --out tuned.tsr\n"
      "  tessera train model.tsr --data text.txt --steps 200 --resume tuned.tsr --out tuned.tsr   # continues\n"
      "  tessera train model.tsr --data text.txt --resume auto --out tuned.tsr   # in a job that is started again until it has ended\n"
      "  tessera train model.tsr --data text.txt --steps 300 --resume tuned.tsr --out further.tsr   # tuned.tsr and "
      "its checkpoint stay\n"
      "  tessera train model.tsr --data text.txt --devices cpu:4 --parallel dp=2,tp=2,zero=1 --out parallel.tsr "
      "--json\n"
      "  tessera train model.tsr --data text.txt --lora 8 --out adapter   # a PEFT folder; adapted.tsr: a model's "
      "file\n"
      "  tessera train model.tsr --data text.txt --eval-fraction 0.1 --eval-every 20 --patience 3 --keep 2 --out "
      "best.tsr\n"
      "  tessera train model.tsr --data text.txt --method auto --memory-limit 8GiB --out fitted.tsr\n"
      "  tessera train model.tsr --data chats.jsonl --seq 1024 --packing bfd --lora 8 --out adapted.tsr   # first: "
      "tessera data\n"
      "  tessera train model.tsr --data text.txt --out logged.tsr --metrics run.jsonl --tensorboard runs/one --report "
      "run.html\n"
      "  tessera train model.tsr --data pairs.jsonl --loss dpo --lr 1e-6 --seq 1024 --lora 16 --out preferred.tsr   # "
      "preferences\n"
      "  tessera train tuned.tsr --data labelled.jsonl --loss kto --reference model.tsr --cache auto --out better.tsr");
  add_train_arguments(*command, *args);
  command->callback([args, command] { train(*command, *args); });
}

}  // namespace cli
