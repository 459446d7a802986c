#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "command.h"
#include "inference.h"
#include "interruptible.h"
#include "plan_text.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, prompt;
  Inference inference;
  Sampling sampling;
  bool echo = false, special = false, stats = false;
};

// "tokens     100 in 0.53 s (188 tokens/s, 5.31 ms a token)"
void print_stats(const Json& report) {
  const auto rate = [](double tokens, double seconds) {
    return seconds_text(seconds) + (seconds > 0 ? " (" + rate_text(tokens / seconds) + " tokens/s)" : "");
  };
  const auto prompt = report["prompt_tokens"].get<int64_t>(), tokens = report["tokens"].get<int64_t>();
  // The first token is the prompt's.
  const auto decoded = static_cast<double>(std::max<int64_t>(0, tokens - 1));
  std::cerr << "prompt     " << counted(prompt, "token") << " in "
            << rate(static_cast<double>(prompt), report["prefill_seconds"].get<double>()) << '\n'
            << "generated  " << counted(tokens, "token") << " in "
            << rate(decoded, report["decode_seconds"].get<double>()) << ", context "
            << report["context"].get<int64_t>() << '\n';
  if (report.contains("seed")) std::cerr << "seed       " << report["seed"].get<int64_t>() << '\n';
  std::cerr << "a token    reads " << bytes_text(report["token_reads"]["parameter_bytes"].get<int64_t>())
            << " of parameters and at most "
            << bytes_text(report["token_reads"]["full_cache_bytes"].get<int64_t>()) << " of caches, launches "
            << counted(report["launches_per_token"].get<int64_t>(), "kernel") << '\n'
            << "plan       " << report["plan"]["strategy"].get<std::string>() << '\n';
  for (const Json& device : report["devices"])
    std::cerr << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"].get<int64_t>()) << '\n';
}
}  // namespace

void register_generate(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "continue a text");
  command->footer(
      "Example:\n  tessera generate model.tsr --prompt \"Once upon a time\" -n 200 --temp 0.7\n"
      "Prints the decoded text as it comes, without BOS, and adds no newline (on a terminal one).");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  command->add_option("--prompt", args->prompt, "the text to continue; empty starts from BOS");
  add_sampling(*command, args->sampling);
  add_inference(*command, args->inference);
  command->add_flag("--echo", args->echo, "print the prompt too");
  command->add_flag("--special", args->special,
                    "recognise control tokens written out in the prompt, such as <s>");
  command->add_flag("--stats", args->stats, "speed and memory on stderr (--json has them always)");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args] {
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(*args, args->model);
    (void)model_tokenizer(model, args->model);  // its absence is told before anything is planned
    Options options = make<Options>(tsr_options_new);
    set_placement(options, *args);
    set_sampling(options, args->sampling);
    set(options, "echo", int64_t{args->echo});
    set(options, "special", int64_t{args->special});
    set_inference(options, args->inference);
    const Generator generator =
        make_interruptible<Generator>(tsr_generator_new, runtime, model.get(), options.get());
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
    const bool on_terminal = !args->json && isatty(STDOUT_FILENO) == 1;
    if (on_terminal) std::cout << std::endl;  // or the shell's prompt follows the text
    if (args->stats && !args->json) {
      if (!on_terminal) std::cerr << '\n';  // both may lead to the same place
      print_stats(report);
    }
    if (args->json) {
      print_json({{"text", all}, {"tokens", tokens}, {"report", report}});
    }
  });
}

}  // namespace cli
