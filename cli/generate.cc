#include <iostream>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, prompt, precision, weights;
  std::vector<std::string> stop;
  int64_t count = 128, top_k = 0, context = 0;
  double temperature = 0.8, top_p = 1;
  bool echo = false, special = false, stats = false;
};
}  // namespace

void register_generate(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "continue a text");
  command->footer(
      "Example:\n  tessera generate model.tsr --prompt \"Once upon a time\" -n 200 --temp 0.7\n"
      "Prints the decoded text as it comes, without BOS, and adds no newline.");
  command->add_option("model", args->model, ".tsr or GGUF file")->required();
  command->add_option("--prompt", args->prompt, "the text to continue; empty starts from BOS");
  command->add_option("-n,--tokens", args->count, "tokens to generate")->capture_default_str();
  command->add_option("--temp", args->temperature, "0: always the likeliest token")->capture_default_str();
  command->add_option("--top-k", args->top_k, "sample among this many; 0: all")->capture_default_str();
  command->add_option("--top-p", args->top_p, "and among the likeliest that sum to this")
      ->capture_default_str();
  command->add_option("--stop", args->stop, "a text that ends the generation; may be repeated");
  command->add_option("--context", args->context, "tokens that the cache holds (default: the model's)");
  command->add_option("--seed", args->seed, "of the sampling")->capture_default_str();
  command->add_option(
      "--precision", args->precision,
      "f32 or bf16: activations and caches; tf32: f32, but for matrix products (default: f32)");
  command->add_option("--weights", args->weights,
                      "bf16, int8 or int4: how matrices are kept (default: as they are)");
  command->add_flag("--echo", args->echo, "print the prompt too");
  command->add_flag("--special", args->special,
                    "recognise control tokens written out in the prompt, such as <s>");
  command->add_flag("--stats", args->stats, "speed and memory, on stderr");
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args] {
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(args->model);
    Options options = make<Options>(tsr_options_new);
    set_placement(options, *args);
    set(options, "max_tokens", args->count);
    set(options, "temperature", args->temperature);
    set(options, "top_k", args->top_k);
    set(options, "top_p", args->top_p);
    set(options, "seed", args->seed);
    set(options, "echo", int64_t{args->echo});
    set(options, "special", int64_t{args->special});
    if (!args->precision.empty()) set(options, "precision", args->precision);
    if (!args->weights.empty()) set(options, "weights", args->weights);
    if (args->context != 0) set(options, "context", args->context);
    if (!args->stop.empty()) set(options, "stop", Json(args->stop).dump());
    const Generator generator = make<Generator>(tsr_generator_new, runtime.get(), model.get(), options.get());
    check(tsr_generator_start(generator.get(), args->prompt.data(), args->prompt.size()));
    std::string all;
    std::vector<int32_t> tokens;
    for (;;) {
      tsr_piece piece{};
      piece.struct_size = sizeof piece;
      check(tsr_generator_next(generator.get(), -1, &piece));
      if (piece.kind == TSR_END) break;
      if (piece.kind != TSR_PIECE) continue;
      if (piece.token >= 0) tokens.push_back(piece.token);
      if (args->json)
        all.append(piece.text, piece.text_size);
      else
        std::cout.write(piece.text, static_cast<std::streamsize>(piece.text_size)).flush();
    }
    const Json report = Json::parse(text(tsr_generator_report, generator.get()));
    if (args->stats) std::cerr << '\n' << report.dump() << '\n';
    drain_log(runtime);
    if (args->json) {
      Json result = {{"text", all}, {"tokens", tokens}};
      result.update(report.contains("plan") ? Json{{"report", report}} : Json::object());
      print_json(result);
    }
  });
}

}  // namespace cli
