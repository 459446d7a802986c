#include <iostream>

#include "command.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, output;
};
}  // namespace

void register_merge(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("merge", "merge a model's low-rank adapters into its weights");
  command->footer(
      "Example:\n  tessera train model.tsr --data text.txt --lora 8 --out adapted.tsr\n"
      "  tessera merge adapted.tsr -o tuned.tsr");
  command
      ->add_option("model", args->model,
                   ".tsr file with adapters, from `tessera train --lora`; or with --adapter any model")
      ->required();
  add_adapter_file(*command, *args);
  command->add_option("-o,--out", args->output, "file to write: .tsr, or GGUF where the name ends in .gguf")
      ->required();
  add_json(*command, *args);
  command->callback([args] {
    check_output(args->output);
    const Model model = open_model(*args, args->model);
    const Model merged = make<Model>(tsr_model_merge_adapters, model.get());
    save_model(*args, merged, args->output);
    const Json before = Json::parse(text(tsr_model_info, model.get()));
    const Json after = Json::parse(text(tsr_model_info, merged.get()));
    if (args->json) return print_json({{"out", args->output}, {"parameters", after["parameters"]}});
    std::cout << args->output << ": " << after["parameters"].get<int64_t>() << " parameters, "
              << before["parameters"].get<int64_t>() - after["parameters"].get<int64_t>()
              << " of adapters taken in\n";
  });
}

}  // namespace cli
