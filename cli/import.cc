#include <iostream>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string input, output;
  bool compress = false;
};
}  // namespace

void register_import(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("import", "convert a GGUF file to a .tsr model");
  command->footer("Example:\n  tessera import stories260K.gguf -o stories.tsr");
  command->add_option("model", args->input, "GGUF file")->required();
  command->add_option("-o,--out", args->output, ".tsr file to write")->required();
  command->add_flag("--compress", args->compress, "compress the tensors (smaller, no longer mapped)");
  add_json(*command, *args);
  command->callback([args] {
    const Model model = make<Model>(tsr_model_load, args->input.c_str());
    Options options = make<Options>(tsr_options_new);
    set(options, "compress", int64_t{args->compress});
    check(tsr_model_save(model.get(), args->output.c_str(), options.get()));
    check(tsr_model_verify(args->output.c_str()));
    const Json info = Json::parse(text(tsr_model_info, model.get()));
    if (args->json) return print_json({{"out", args->output}, {"parameters", info["parameters"]}});
    std::cout << args->output << ": " << info["architecture"].get<std::string>() << ", "
              << info["parameters"].get<int64_t>() << " parameters\n";
  });
}

}  // namespace cli
