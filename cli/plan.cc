#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "adapter_options.h"
#include "command.h"
#include "method.h"
#include "plan_generate.h"
#include "plan_serve.h"
#include "plan_text.h"
#include "serving.h"
#include "text_files.h"

namespace cli {

namespace {
// Largest files of pins and of certificates, whose parsed forms are many times as large.
constexpr int64_t kMostPinBytes = int64_t{16} << 20, kMostCertificateBytes = int64_t{256} << 20;

struct Arguments : Common {
  Adapters adapters;
  std::string trained, frozen, method, model, output, mode = "train", cluster, trace, report, pins;
  std::string optimizer = "adamw";  // By name: the default that --help shows
  std::string certificate, checked, fused_loss, precision, weights;
  std::optional<std::string> loss;
  std::optional<double> within;
  bool verify = false;
  std::string objective = "latency", kv_budget;
  int64_t batch = 8, accumulate = 1, seq = 0, context = 0, prompt = 512, new_tokens = 128;
  Serving serving;
};

// Prints memory and time of the lowered program, block by block.
void print_composed(const Json& composed) {
  std::cout << "lowered    block by block: " << bytes_text(composed["memory_bytes"].get<int64_t>())
            << " on the fullest device"
            << (composed["fits"].get<bool>() ? ", which fits" : ", which is above the limit") << '\n';
}

void print_verified(const Json& verified) {
  std::cout << "           whole:";
  for (const Json& device : verified["devices"])
    std::cout << (&device == &verified["devices"].front() ? " " : ", ")
              << bytes_text(device["memory_bytes"].get<int64_t>()) << " on stage "
              << device["device"].get<int64_t>();
  std::cout << '\n';
}

void print_estimate(const Json& estimate) {
  const auto micro_batches = estimate["micro_batches"].get<int64_t>();
  std::cout << "plan       " << estimate["parallel"].get<std::string>() << "   ("
            << counted(estimate["global_batch"].get<int64_t>(), "sequence") << " in "
            << counted(micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batche") << ", "
            << counted(estimate["devices"].get<int64_t>(), "device") << ")\n"
            << "step       " << seconds_text(estimate["predicted_step_seconds"].get<double>())
            << " predicted, " << rate_text(estimate["tokens_per_second"].get<double>())
            << " tokens/s in all\n";
  if (estimate.contains("gap"))
    std::cout << "gap        " << percent_text(estimate["gap"].get<double>())
              << ": no plan searched takes less than "
              << seconds_text(estimate["bound_seconds"].get<double>()) << " ("
              << estimate["search"]["configurations"].get<int64_t>() << " configurations, "
              << estimate["search"]["solved"].get<int64_t>() << " solved, "
              << estimate["search"]["too_large"].get<int64_t>()
              << " too large, the others closed by bounds)\n";
  else
    std::cout << "gap        not known: this plan was given and priced, nothing was searched\n";
  print_explanation(std::cout, estimate["explanation"], true);
  print_composed(estimate["composed"]);
  if (estimate.contains("verified")) print_verified(estimate["verified"]);
}

// Sets the options of a training step on absent devices.
void set_absent_training(const Options& options, const Arguments& args) {
  const Adapters& adapters = args.adapters;
  if (adapters.rank == 0 && has_adapter_options(adapters))
    throw Error(TSR_INVALID_ARGUMENT, "options of adapters belong to --lora RANK, which is missing");
  if (!adapters.on.empty() || !adapters.exclude.empty() || !adapters.layers.empty() ||
      !adapters.ranks.empty() || !adapters.init.empty() || !adapters.also.empty() || adapters.dora)
    throw Error(TSR_UNSUPPORTED,
                "--lora-on, --lora-exclude, --lora-layers, --lora-ranks, --lora-init, --lora-also and --dora: with "
                "--cluster, every matmul of the blocks has adapters of one rank, and nothing else trains");
  if (adapters.alpha)
    throw Error(TSR_UNSUPPORTED,
                "--lora-alpha: with --cluster, a factor changes neither the time nor the bytes of a plan; "
                "leave it out");
  if (!args.method.empty()) set(options, "method", args.method);
  if (adapters.rank > 0) set(options, "lora", adapters.rank);
  if (args.seq != 0) set(options, "seq", args.seq);
  set(options, "optimizer", args.optimizer);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (!args.trained.empty()) set(options, "trained", args.trained);
  if (!args.frozen.empty()) set(options, "frozen", args.frozen);
  if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
}

void print_check(const Json& check) {
  std::cout << "valid      " << check["plan"].get<std::string>() << " takes "
            << check["step_seconds"].get<double>() << " s; no plan of the space is faster than "
            << check["bound_seconds"].get<double>() << " s (gap " << 100 * check["gap"].get<double>()
            << " %)\n"
            << "checked    " << check["configurations"].get<int64_t>()
            << " configurations: " << check["closed_by_bound"].get<int64_t>() << " closed by bounds, "
            << check["composed"].get<int64_t>() << " composed again, " << check["too_large"].get<int64_t>()
            << " do not fit\n";
}

// Refuses options without effect: the plan would appear to heed them.
void refuse_idle_options(const CLI::App& command, const Arguments& args, bool train, bool cluster) {
  const auto given = [&](std::initializer_list<const char*> names, const std::string& why) {
    for (const char* name : names)
      if (command.count(name) > 0) throw Error(TSR_INVALID_ARGUMENT, std::string(name) + ": " + why);
  };
  if (cluster) {
    given({"--out", "--trace"},
          "with --cluster there is no lowered plan to write: leave it out, or use --json");
    given({"--devices", "--plan", "--profile", "--measure", "--tune", "--host-memory-limit", "--context"},
          "is for present devices, and --cluster for absent ones: leave out one");
  } else {
    given({"--objective", "--prompt", "--new", "--kv-budget"}, "belongs to --cluster, which is missing");
  }
  if (train)
    given({"--objective", "--prompt", "--new", "--kv-budget", "--context"},
          "belongs to --mode generate, and this is train");
  else
    given({"--seq", "--optimizer", "--method", "--trained", "--frozen", "--fused-loss", "--loss",
           "--accumulate", "--trace", "--within", "--certificate"},
          "belongs to --mode train, and this is generate");
  if (!train && cluster) {
    given({"--lora"}, "with --cluster adapters are planned for training alone");
    given({"--verify"}, "steps of training are lowered: leave it out");
    given({"--precision", "--weights"}, "with --cluster text is generated in bf16: leave it out");
  }
  if (!train && !cluster && args.batch != 1)
    given({"--batch"}, "without --cluster one sequence is generated: leave it out");
}

Json plan_serving(const CLI::App& command, const Arguments& args) {
  for (const char* name :
       {"--cluster",     "--seq",    "--batch",      "--accumulate", "--optimizer", "--method",
        "--trained",     "--frozen", "--fused-loss", "--loss",       "--trace",     "--within",
        "--certificate", "--verify", "--objective",  "--prompt",     "--new",       "--kv-budget",
        "--pins",        "--out",    "--report",     "--plan",       "--measure",   "--tune"})
    if (command.count(name) > 0)
      throw Error(TSR_INVALID_ARGUMENT, std::string(name) + ": belongs to another mode, and this is serve");
  const Runtime runtime = open_runtime(args);
  const Model model = add_adapters(open_model(args, args.model), args.adapters);
  const Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "mode", args.mode);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (args.context != 0) set(options, "context", args.context);
  set_serving(options, args.serving);
  const Plan plan = make_plan(args, runtime, model, options);
  return serving_plan(Json::parse(text(tsr_plan_info, static_cast<const tsr_plan*>(plan.get()))));
}

// Refuses options of engines in other modes.
void refuse_serving_options(const CLI::App& command, const std::string& mode) {
  if (const std::string name = given_serving(command); !name.empty())
    throw Error(TSR_INVALID_ARGUMENT, name + ": belongs to --mode serve, and this is " + mode);
}

// "dp=2, tp=2" as "mesh dp=2, tp=2"; one device has none. Devices without any tensor are idle.
std::string mesh_text(const Json& plan) {
  const std::string mesh = plan["mesh"].get<std::string>();
  int64_t idle = 0;
  for (const Json& device : plan["devices"]) idle += device["arena_bytes"]["predicted"] == 0 ? 1 : 0;
  const auto used = static_cast<int64_t>(plan["devices"].size()) - idle;
  std::string text = used == 1 ? "one device" : counted(used, "device");
  if (!mesh.empty())
    text += ", mesh " + mesh + (plan["strategy"].get<std::string>().find("pp=") == 0 ? " a stage" : "");
  if (idle > 0) text += "; " + std::to_string(idle) + " idle: no plan looked at is faster with them";
  return text;
}

void print_plan(const Json& plan, const Json& explanation, bool trains) {
  const auto micro_batches = plan["micro_batches"].get<int64_t>();
  const double step = explanation["step_seconds"].get<double>();
  std::cout << "plan       " << plan["strategy"].get<std::string>() << "   (" << mesh_text(plan) << ")\n"
            << (trains ? "step       " : "token      ") << seconds_text(step) << " predicted";
  if (trains) {
    const auto batch = plan["global_batch"].get<int64_t>();
    std::cout << " for " << counted(batch, "sequence") << " in "
              << counted(micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batche");
    if (const auto batches = plan["accumulate"].get<int64_t>(); batches > 1)
      std::cout << ", of which " << batches << " make an update";
    if (plan["symbols"].contains("T") && step > 0)
      std::cout << ", " << rate_text(static_cast<double>(batch * plan["symbols"]["T"].get<int64_t>()) / step)
                << " tokens/s";
  } else {
    std::cout << ", one sequence";
  }
  std::cout << "\nprices     "
            << (plan["profile"].get<std::string>().empty()
                    ? "built-in rates (`tessera calibrate` measures these devices)"
                    : "device profile " + plan["profile"].get<std::string>())
            << '\n';
  if (plan.contains("search") && explanation.contains("gap")) {
    std::cout << "gap        " << percent_text(explanation["gap"].get<double>())
              << (plan["search"]["configurations"].get<int64_t>() > 1
                      ? ": no plan searched takes less than " +
                            seconds_text(explanation["bound_seconds"].get<double>())
                      : std::string(": nothing else was to choose"))
              << '\n';
  }
  print_explanation(std::cout, explanation, trains);
}
void check_certificate(const Arguments& args) {
  const std::string certificate = read_file(args.checked, kMostCertificateBytes);
  std::string report;
  try {
    report = text(tsr_plan_check, certificate.c_str());
  } catch (const Error& error) {
    throw Error(error.code(), args.checked + ": " + error.what());
  }
  const Json check = Json::parse(report);
  args.json ? print_json(check) : print_check(check);
}

// Prints the estimate, and writes its page to --report.
Json estimate_plan(const Arguments& args, const Options& options) {
  const auto* const given = static_cast<const tsr_options*>(options.get());
  if (!args.report.empty()) write_file(args.report, text(tsr_plan_estimate_page, args.model.c_str(), given));
  return Json::parse(text(tsr_plan_estimate, args.model.c_str(), given));
}

Options absent_options(const Arguments& args) {
  Options options = make<Options>(tsr_options_new);
  set(options, "cluster", args.cluster);
  set(options, "parallel", args.parallel);
  if (!args.memory_limit.empty()) set(options, "memory_limit", args.memory_limit);
  return options;
}

void plan_absent_generation(const CLI::App& command, const Arguments& args) {
  const Options options = absent_options(args);
  set(options, "mode", args.mode);
  set(options, "objective", args.objective);
  set(options, "prompt", args.prompt);
  set(options, "new", args.new_tokens);
  if (command.count("--batch") > 0) set(options, "batch", args.batch);
  if (!args.kv_budget.empty()) set(options, "kv_budget", args.kv_budget);
  const Json plan = estimate_plan(args, options);
  args.json ? print_json(plan) : print_generate(plan);
}

void plan_absent_training(const Arguments& args) {
  const Options options = absent_options(args);
  set(options, "batch", args.batch);
  set_absent_training(options, args);
  if (!args.certificate.empty()) set(options, "certificate", int64_t{1});
  if (args.verify) set(options, "verify", std::string("on"));
  if (args.within) set(options, "within", *args.within);
  Json estimate = estimate_plan(args, options);
  if (!args.certificate.empty()) {
    write_file(args.certificate, estimate["certificate"].dump(1) + '\n');
    estimate.erase("certificate");
  }
  if (!args.json && estimate.contains("methods")) std::cout << methods_text(estimate) << '\n';
  args.json ? print_json(estimate) : print_estimate(estimate);
}

// Options of a trainer or a generator on present devices.
Options present_options(const Arguments& args) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  if (!args.pins.empty()) set(options, "pins", read_file(args.pins, kMostPinBytes));
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (args.mode == "train") {
    set(options, "batch", args.batch);
    set(options, "accumulate", args.accumulate);
    if (args.seq != 0) set(options, "seq", args.seq);
    set(options, "optimizer", args.optimizer);
    if (!args.trained.empty()) set(options, "trained", args.trained);
    if (!args.frozen.empty()) set(options, "frozen", args.frozen);
    if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
    set(options, "loss", args.loss);
    if (!args.trace.empty()) set(options, "trace", int64_t{1});
  } else if (args.context != 0) {
    set(options, "context", args.context);
  }
  return options;
}

void plan_present(const Arguments& args) {
  const Options options = present_options(args);
  set(options, "mode", args.mode);
  check_options(options, "plan");
  const Runtime runtime = open_runtime(args);
  Model model = open_model(args, args.model);
  if (args.method.empty()) model = add_adapters(std::move(model), args.adapters);
  Json methods;
  if (!args.method.empty())
    model =
        model_for_method(runtime, model, nullptr, present_options(args), args.method, args.adapters, methods);
  const Plan plan = make_plan(args, runtime, model, options);
  const auto* const made = static_cast<const tsr_plan*>(plan.get());
  if (!args.trace.empty()) write_file(args.trace, text(tsr_plan_trace, made));
  if (!args.output.empty()) check(tsr_plan_save(plan.get(), args.output.c_str()));
  if (!args.report.empty()) write_file(args.report, text(tsr_plan_page, made));
  Json info = Json::parse(text(tsr_plan_info, made));
  Json explanation = Json::parse(text(tsr_plan_explain, made));
  if (!methods.is_null()) info["methods"] = methods;
  if (!args.json && !methods.is_null()) std::cout << methods_text(methods) << '\n';
  if (!args.json) return print_plan(info, explanation, args.mode == "train");
  info["explanation"] = std::move(explanation);
  print_json(info);
}

void run_plan(const CLI::App& command, const Arguments& args) {
  if (!args.checked.empty()) return check_certificate(args);
  if (args.model.empty()) throw CLI::RequiredError("model, or --check");
  // A search may take long: an unwritable output is reported before it.
  check_output(args.output, Output::kFile);
  for (const std::string& text : {args.report, args.trace, args.certificate})
    check_output(text, Output::kText);
  if (args.mode == "serve") {
    const Json plan = plan_serving(command, args);
    return args.json ? print_json(plan) : print_serving_plan(plan);
  }
  refuse_serving_options(command, args.mode);
  refuse_idle_options(command, args, args.mode == "train", !args.cluster.empty());
  if (args.cluster.empty()) return plan_present(args);
  args.mode == "generate" ? plan_absent_generation(command, args) : plan_absent_training(args);
}

void add_model_options(CLI::App& command, Arguments& args) {
  command.add_option("model", args.model, ".tsr or GGUF file, Hugging Face folder, or a description");
  command.add_option("--mode", args.mode, "train, generate, or serve: many sequences at once")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "generate", "serve"}));
  command.add_option("--batch", args.batch, "sequences in one step, over all devices")->capture_default_str();
  command
      .add_option("--accumulate", args.accumulate,
                  "train: batches per optimizer step (gradient accumulation)")
      ->capture_default_str();
  command.add_option(
      "--seq", args.seq,
      "train: tokens a sequence (default: 128, or a shorter context; with --cluster the model's T)");
  command.add_option("--context", args.context, "generate, serve: maximum tokens of a sequence");
  add_serving(command, args.serving, "serve: ");
}

void add_training_options(CLI::App& command, Arguments& args) {
  command.add_option("--optimizer", args.optimizer, "as for train")->capture_default_str();
  command.add_option("--cluster", args.cluster,
                     "plan for absent devices (dgx-a100-80gb:512, a file NAME.json, or several joined by +): a "
                     "complete mesh in --parallel is priced, else the fastest step is searched");
  command
      .add_option("--within", args.within,
                  "with --cluster: among plans within this fraction of the fastest, take the one with least tensor "
                  "parallelism and smallest micro-batches (default 0.02; 0: the fastest)")
      ->needs("--cluster")
      ->check(CLI::Range(0.0, 1.0));
  add_method(command, args.method);
  command.get_option("--accumulate")->excludes("--cluster");
  add_adapter_options(command, args.adapters);
  command.add_option("--trained", args.trained, "train: trained parameters; all others are frozen: block.1.*");
  command.add_option("--frozen", args.frozen,
                     "train: frozen parameters: block.0.*,token_embedding");
  command
      .add_option("--loss", args.loss,
                  "train: cross_entropy (default), or a preference loss: dpo, kto, ... (see train), of pairs of up to "
                  "--seq tokens each")
      ->excludes("--cluster");
  command
      .add_flag(
          "--verify", args.verify,
          "train, with --cluster: check by lowering that the plan fits on the first, last, fullest and slowest device "
          "of the pipeline")
      ->needs("--cluster");
  command.add_option("--fused-loss", args.fused_loss,
                     "train: on, off or auto: fused output head and loss, without stored logits (with --cluster auto "
                     "is off)");
}

void add_output_options(CLI::App& command, Arguments& args) {
  command.add_option("--precision", args.precision,
                     "f32, tf32 or bf16; train: also f16 and fp8 (default: f32; with --cluster bf16)");
  command.add_option(
      "--weights", args.weights,
      "bf16; generate: also f16 or a block type such as q8_0 (default: as the model has them)");
  command.add_option("--objective", args.objective, "generate, with --cluster: latency or throughput")
      ->capture_default_str();
  command.add_option("--prompt", args.prompt, "generate, with --cluster: tokens of a prompt")
      ->capture_default_str();
  command.add_option("--new", args.new_tokens, "generate, with --cluster: tokens to generate")
      ->capture_default_str();
  command.add_option("--kv-budget", args.kv_budget,
                     "generate, with --cluster: bytes of keys and values per device (default: the rest of the memory)");
  command
      .add_option("--certificate", args.certificate,
                  "with --cluster: file for a proof that no plan of the searched space is faster than the printed "
                  "bound")
      ->needs("--cluster");
  command.add_option("--check", args.checked, "verify a certificate; names what does not hold")
      ->excludes(command.get_option("model"));
  command.add_option("-o,--out", args.output, "file for the plan, to edit or to use with --plan");
  command
      .add_option("--pins", args.pins,
                  "single decisions, next to --parallel: a JSON file in the format of tsr_plan_new")
      ->excludes("--cluster");
  command.add_option("--report", args.report,
                     "write an HTML page that explains the plan: timeline, memory, tensors, runners-up");
  command.add_option("--trace", args.trace,
                     "train: file for a trace of the predicted step, for Perfetto or chrome://tracing");
  add_placement(command, args);
  add_json(command, args);
}
}  // namespace

void register_plan(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("plan", "plan a computation: its layout, time and bytes");
  command->footer(
      "Example:\n  tessera plan model.tsr --devices cpu:4 --batch 8 --seq 128 --memory-limit 512MiB\n"
      "  tessera plan gpt2:L=12,C=768,H=12,V=50257,T=1024 --devices cpu:2 --parallel tp=2 --json\n"
      "  tessera plan gpt2:L=48,C=8192,H=64,V=51200,T=2048 --cluster dgx-a100-80gb:512 --batch 1536 \\\n"
      "      --parallel tp=8,dp=32,pp=2:1f1b,mb=4,sp,recompute=full\n"
      "  tessera plan gpt2:L=48,C=8192,H=64,V=51200,T=2048 --cluster dgx-a100-80gb:64 --batch 256 \\\n"
      "      --method qlora:nf4 --lora 16\n"
      "  tessera plan model.tsr --devices cpu:2 --batch 8 --seq 128 --lora 8 --memory-limit 64MiB\n"
      "  tessera plan llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192 --cluster dgx-h100:8 --mode "
      "generate \\\n"
      "      --objective throughput --prompt 512 --new 128\n"
      "  tessera plan model.tsr --mode serve --sequences 32 --context 4096 --cache-type f16 --memory-limit "
      "8GiB\n"
      "Nothing large is allocated: a description serves in place of a model. --json adds \"explanation\", whose "
      "keys\ntessera.h lists with tsr_plan_explain.");
  add_model_options(*command, *args);
  add_training_options(*command, *args);
  add_output_options(*command, *args);
  command->callback([args, command] { run_plan(*command, *args); });
}

}  // namespace cli
