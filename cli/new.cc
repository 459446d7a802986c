#include <cstdint>
#include <iostream>
#include <string>

#include "command.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string description, output, tokenizer;
};

// Checks that a model has an embedding for every token of its tokenizer.
void check_vocabulary(const Json& info, int64_t tokens) {
  for (const Json& tensor : info["tensors"])
    if (tensor["name"] == "token_embedding" && tensor["shape"][0].get<int64_t>() < tokens)
      throw Error(TSR_INVALID_ARGUMENT,
                  "the tokenizer has " + std::to_string(tokens) + " tokens, the model V=" +
                      std::to_string(tensor["shape"][0].get<int64_t>()) + ": wanted a V of at least as many");
}
}  // namespace

void register_new(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("new", "make a model with random weights from a description");
  command->footer(
      "Example:\n  tessera new llama:L=4,C=192,H=6,KV=3,F=512,V=256,T=256 --tokenizer bytes -o small.tsr\n"
      "Letters: L layers, C channels, H heads, KV key-value heads, F feed-forward width, V vocabulary, T "
      "context");
  command->add_option("description", args->description, "family and sizes")->required();
  command->add_option("-o,--out", args->output, "file to write: .tsr, or GGUF where the name ends in .gguf")
      ->required();
  command->add_option("--tokenizer", args->tokenizer, "bytes, or a .tsr or GGUF file to take it from");
  command->add_option("--seed", args->seed, "seed of the random weights")->capture_default_str();
  add_json(*command, *args);
  command->callback([args] {
    check_output(args->output);
    Options options = make<Options>(tsr_options_new);
    set(options, "seed", args->seed);
    const Model model = make<Model>(tsr_model_new, args->description.c_str(), options.get());
    const Json info = Json::parse(text(tsr_model_info, model.get()));
    if (!args->tokenizer.empty()) {
      const Tokenizer tokenizer = open_tokenizer(args->tokenizer);
      check_vocabulary(info, tsr_tokenizer_vocabulary_size(tokenizer.get()));
      check(tsr_model_set_tokenizer(model.get(), tokenizer.get()));
    }
    save_model(*args, model, args->output);
    if (args->json) return print_json({{"out", args->output}, {"parameters", info["parameters"]}});
    std::cout << args->output << ": " << info["parameters"].get<int64_t>() << " parameters\n";
  });
}

}  // namespace cli
