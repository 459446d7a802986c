#include <iostream>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, output, mode = "train", optimizer = "adamw";
  int64_t batch = 8, seq = 0, context = 0;
};

void print_plan(const Json& plan) {
  std::cout << "strategy   " << plan["strategy"].get<std::string>() << "   (mesh "
            << plan["mesh"].get<std::string>() << ", " << plan["micro_batches"].get<int64_t>()
            << " micro-batch" << (plan["micro_batches"].get<int64_t>() == 1 ? "" : "es") << ")\n"
            << "step       " << plan["predicted_step_seconds"].get<double>() << " s predicted\n";
  for (const Json& device : plan["devices"])
    std::cout << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"].get<int64_t>()) << "  ("
              << device["arena_bytes"]["predicted"].get<int64_t>() << " bytes)\n";
  std::cout << "considered\n";
  for (const Json& candidate : plan["candidates"]) {
    std::cout << "  " << candidate["strategy"].get<std::string>();
    const std::string rejected = candidate["rejected"].get<std::string>();
    if (rejected.empty())
      std::cout << "  " << candidate["step_seconds"].get<double>() << " s, "
                << bytes_text(candidate["arena_bytes"].get<int64_t>());
    else
      std::cout << "  no: " << rejected;
    std::cout << '\n';
  }
}
}  // namespace

void register_plan(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("plan", "how a model would be computed, how fast, and in how many bytes");
  command->footer(
      "Example:\n  tessera plan model.tsr --devices cpu:4 --batch 8 --seq 128 --memory-limit 512MiB\n"
      "  tessera plan gpt2:L=12,C=768,H=12,V=50257,T=1024 --devices cpu:2 --parallel tp=2 --json\n"
      "Nothing large is allocated: a description serves in place of a model.");
  command->add_option("model", args->model, ".tsr or GGUF file, or a description")->required();
  command->add_option("--mode", args->mode, "train or generate")->capture_default_str();
  command->add_option("--batch", args->batch, "sequences in one step, over all devices")
      ->capture_default_str();
  command->add_option("--seq", args->seq, "tokens a sequence (default: 128)");
  command->add_option("--context", args->context, "generate: tokens that the cache holds");
  command->add_option("--optimizer", args->optimizer, "adamw or sgd")->capture_default_str();
  command->add_option("-o,--out", args->output, "save the plan, to edit it or to give it to --plan");
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args] {
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(args->model);
    Options options = make<Options>(tsr_options_new);
    set_placement(options, *args);
    set(options, "mode", args->mode);
    if (args->mode == "train") {
      set(options, "batch", args->batch);
      set(options, "seq", args->seq > 0 ? args->seq : int64_t{128});
      set(options, "optimizer", args->optimizer);
    } else if (args->context > 0) {
      set(options, "context", args->context);
    }
    const Plan plan = make<Plan>(tsr_plan_new, runtime.get(), model.get(), options.get());
    if (!args->output.empty()) check(tsr_plan_save(plan.get(), args->output.c_str()));
    const Json info = Json::parse(text(tsr_plan_info, static_cast<const tsr_plan*>(plan.get())));
    args->json ? print_json(info) : print_plan(info);
  });
}

}  // namespace cli
