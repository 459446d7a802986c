#include <iostream>

#include "adapter_options.h"
#include "command.h"
#include "progress.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, output;
  Adapters adapters;
};
}  // namespace

void register_adapt(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("adapt", "give a model low-rank adapters: new ones, or those of a file");
  command->footer(
      "Example:\n  tessera adapt base-folder --adapter peft-folder -o adapted.tsr\n"
      "  tessera adapt model.tsr --lora 8 --rslora --lora-on q_proj,v_proj -o adapted.tsr\n"
      "Then: tessera train, generate, merge, or export --format peft.");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder, of the base")
      ->required();
  command->add_option("-o,--out", args->output, ".tsr file to write")->required();
  add_adapter_file(*command, *args);
  add_adapter_options(*command, args->adapters);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] {
    check_output(args->output);
    if (args->adapter.empty() == (args->adapters.rank == 0))
      throw Error(TSR_INVALID_ARGUMENT, "wanted one of --adapter PATH and --lora RANK");
    const Model model = add_adapters(open_model(*args, args->model), args->adapters);
    save_model(*args, model, args->output);
    const Json info = Json::parse(text(tsr_model_info, model.get()));
    if (args->json) return print_json({{"out", args->output}, {"adapters", info["adapters"]}});
    std::cout << args->output << ": " << info["parameters"].get<int64_t>() << " parameters, "
              << info["parameters"].get<int64_t>() - info["frozen_parameters"].get<int64_t>()
              << " of them train\n";
  });
}

}  // namespace cli
